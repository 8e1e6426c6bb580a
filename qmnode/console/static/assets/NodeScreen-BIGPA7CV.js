import{a,b}from"./chunk-KFQPKSWR.js";import"./chunk-GHGEXFR2.js";import"./chunk-XPW2GGYV.js";import"./chunk-WHLULMMF.js";export{a as NodeScreen,b as OwnNode};
