import{a,b}from"./chunk-VTFB2XJG.js";import"./chunk-SUIBWLI5.js";import"./chunk-IEQ2GETI.js";import"./chunk-2T5GX7EN.js";export{a as NodeScreen,b as OwnNode};
