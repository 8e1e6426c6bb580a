import{a,b}from"./chunk-QIOVX27O.js";import"./chunk-WQGY7IVO.js";import"./chunk-UJB2PORL.js";import"./chunk-4WZQX4EH.js";export{a as NodeScreen,b as OwnNode};
