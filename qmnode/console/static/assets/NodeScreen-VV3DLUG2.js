import{a,b}from"./chunk-RAZPGCEU.js";import"./chunk-5BTTR5EG.js";import"./chunk-WWHZ4EV2.js";import"./chunk-2FENVQS5.js";export{a as NodeScreen,b as OwnNode};
