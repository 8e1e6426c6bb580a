import{a,b}from"./chunk-JPNMCLDX.js";import"./chunk-5BTTR5EG.js";import"./chunk-WWHZ4EV2.js";import"./chunk-2FENVQS5.js";export{b as Reason,a as WaitingScreen};
