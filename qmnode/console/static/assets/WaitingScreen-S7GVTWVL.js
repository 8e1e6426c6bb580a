import{a,b}from"./chunk-CMYPTLBI.js";import"./chunk-I4Q5E7LI.js";import"./chunk-H3DJTKO3.js";import"./chunk-GC6J5VHE.js";export{b as Reason,a as WaitingScreen};
