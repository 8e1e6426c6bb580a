import{a,b}from"./chunk-OGAUZJED.js";import"./chunk-XDGZDHMD.js";import"./chunk-WVRR6UUJ.js";import"./chunk-544QGMGN.js";export{b as Reason,a as WaitingScreen};
