import{g as e}from"./index-D5R_6rnl.js";const o=e("/iam/v2beta1/roles",{query:{page_size:200,order_by:"name"}});export{o as r};
