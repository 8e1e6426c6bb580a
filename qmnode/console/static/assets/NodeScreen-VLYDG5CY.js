import{a,b}from"./chunk-FF75TATI.js";import"./chunk-KH7TPT3M.js";import"./chunk-N5SW3Z76.js";import"./chunk-PMA46DB6.js";export{a as NodeScreen,b as OwnNode};
