import{a,b}from"./chunk-P2U35ADF.js";import"./chunk-KH7TPT3M.js";import"./chunk-N5SW3Z76.js";import"./chunk-PMA46DB6.js";export{b as Reason,a as WaitingScreen};
