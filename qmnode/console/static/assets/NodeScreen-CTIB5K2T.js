import{a,b}from"./chunk-F6F4NI44.js";import"./chunk-E7DRP426.js";import"./chunk-6J6ZUKDJ.js";import"./chunk-G4JK7TZR.js";export{a as NodeScreen,b as OwnNode};
