import{a,b}from"./chunk-I4ABSJVZ.js";import"./chunk-7WT26LCA.js";import"./chunk-U6XQQXUQ.js";import"./chunk-YBHWXL4O.js";export{a as NodeScreen,b as OwnNode};
