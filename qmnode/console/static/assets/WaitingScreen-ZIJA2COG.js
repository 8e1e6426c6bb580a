import{a,b}from"./chunk-DJ4FSMK6.js";import"./chunk-SUIBWLI5.js";import"./chunk-IEQ2GETI.js";import"./chunk-2T5GX7EN.js";export{b as Reason,a as WaitingScreen};
