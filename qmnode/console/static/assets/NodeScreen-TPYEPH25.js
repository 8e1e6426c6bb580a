import{a,b}from"./chunk-BJXSVCBJ.js";import"./chunk-BLNENEHF.js";import"./chunk-DDG7RRS5.js";import"./chunk-RNCNQXNN.js";export{a as NodeScreen,b as OwnNode};
