import{a,b}from"./chunk-XJEKNNFY.js";import"./chunk-E7DRP426.js";import"./chunk-R7IO5S4Y.js";import"./chunk-G4JK7TZR.js";export{a as NodeScreen,b as OwnNode};
