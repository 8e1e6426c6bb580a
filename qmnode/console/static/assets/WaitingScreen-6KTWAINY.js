import{a,b}from"./chunk-QSFYFNGH.js";import"./chunk-6YCYLIT4.js";import"./chunk-BLFCKTFH.js";import"./chunk-NJXU6MJV.js";import"./chunk-YJFZO63Q.js";export{b as Reason,a as WaitingScreen};
