import{a,b}from"./chunk-BUIJULX3.js";import"./chunk-XDGZDHMD.js";import"./chunk-WVRR6UUJ.js";import"./chunk-544QGMGN.js";export{a as NodeScreen,b as OwnNode};
