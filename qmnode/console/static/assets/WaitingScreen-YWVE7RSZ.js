import{a,b}from"./chunk-NYPZT5WX.js";import"./chunk-GHGEXFR2.js";import"./chunk-XPW2GGYV.js";import"./chunk-WHLULMMF.js";export{b as Reason,a as WaitingScreen};
