import{a,b}from"./chunk-WXAPARNG.js";import"./chunk-43XVCOWX.js";import"./chunk-CHDAL7AJ.js";import"./chunk-DENFTTOD.js";import"./chunk-UAEQ6KF3.js";export{b as Reason,a as WaitingScreen};
