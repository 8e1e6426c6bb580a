import{a,b}from"./chunk-6566WSZB.js";import"./chunk-WQGY7IVO.js";import"./chunk-UJB2PORL.js";import"./chunk-4WZQX4EH.js";export{b as Reason,a as WaitingScreen};
