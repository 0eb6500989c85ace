import{g as e}from"./index-D1L9k2yk.js";const o=e("/iam/v2beta1/roles",{query:{page_size:200,order_by:"name"}});export{o as r};
