const r=e=>e.replace(/[\\.+*?()|[\]{}^$]/g,"\\$&"),f=e=>{const t=Object.fromEntries(Object.entries(e).filter(([,a])=>a));return Object.keys(t).length>0?t:void 0},l=e=>/^[\w@%+=:,./-]+$/.test(e)?e:`'${e.replaceAll("'","'\\''")}'`,s=(e,...t)=>t.filter(a=>e[a]).map(a=>e[a]==="true"?`--${a}`:`--${a} ${l(e[a]??"")}`).join(" "),h=e=>`(@${e||"[0-9]+"})?`,o=e=>`holdfast auth token --audience ${e.registry} | docker login -u _token --password-stdin ${e.registry}`;function y(e){return e.environment?`environment:${e.environment.replaceAll(":","%3A")}`:e.tag?`ref:refs/tags/${e.tag}`:e["pull-request"]?"pull_request":`ref:refs/heads/${e.branch}`}const c={id:"github",title:"GitHub Actions",issuer:"https://token.actions.githubusercontent.com",fields:[{name:"repo",label:"Repository",example:"acme/web",required:!0,shape:/^[A-Za-z0-9_.-]+\/[A-Za-z0-9_.-]+$/},{name:"branch",label:"Branch",example:"main"},{name:"tag",label:"Tag",example:"v1.2.3"},{name:"environment",label:"Environment",example:"production"},{name:"owner-id",label:"Number of the owner",example:"1",shape:/^[0-9]*$/},{name:"repo-id",label:"Number of the repository",example:"2",shape:/^[0-9]*$/}],oneOf:["branch","tag","environment"],rule:e=>{const[t="",a=""]=(e.repo??"").split("/");return{claimMatch:{issuer:c.issuer,subjectPattern:`repo:${r(t)}${h(e["owner-id"])}/${r(a)}${h(e["repo-id"])}:${r(y(e))}`,claims:f({repository_owner_id:e["owner-id"]??"",repository_id:e["repo-id"]??""})}}},name:e=>`github-${e.repo??""}`,command:e=>`github ${s(e,"repo","branch","tag","environment","owner-id","repo-id")}`,paste:e=>`permissions:
  contents: read
  id-token: write                 # without it the runner has no token to give
jobs:
  build:
    runs-on: ubuntu-latest
    env:
      HOLDFAST_API: ${e.api}
      HOLDFAST_IDENTITY: ${e.identity}
    steps:
      - run: ${o(e)}
`},u={id:"gitlab",title:"GitLab CI",issuer:"https://gitlab.com",fields:[{name:"project",label:"Path of the project",example:"acme/web",required:!0,shape:/^[A-Za-z0-9_.-]+(\/[A-Za-z0-9_.-]+)+$/},{name:"branch",label:"Branch",example:"main"},{name:"tag",label:"Tag",example:"v1.2.3"},{name:"environment",label:"Environment",example:"production"},{name:"project-id",label:"Number of the project",example:"1",shape:/^[0-9]*$/}],anyOf:["branch","tag","environment"],rule:e=>({claimMatch:{issuer:u.issuer,...e.branch||e.tag?{subject:`project_path:${e.project}:ref_type:${e.tag?"tag":"branch"}:ref:${e.branch||e.tag}`}:{subjectPattern:`project_path:${r(e.project??"")}:ref_type:(branch|tag):ref:.+`},claims:f({environment:e.environment??"",project_id:e["project-id"]??""})}}),name:e=>`gitlab-${e.project??""}`,command:e=>`gitlab ${s(e,"project","branch","tag","environment","project-id")}`,paste:e=>`build:
  id_tokens:
    HOLDFAST_ID_TOKEN:
      aud: ${e.api}
  variables:
    HOLDFAST_API: ${e.api}
    HOLDFAST_IDENTITY: ${e.identity}
  script:
    - ${o(e)}
`},m={id:"buildkite",title:"Buildkite",issuer:"https://agent.buildkite.com",fields:[{name:"org",label:"Organization",example:"acme",required:!0,shape:/^[A-Za-z0-9_-]+$/},{name:"pipeline",label:"Pipeline",example:"web",required:!0,shape:/^[A-Za-z0-9_-]+$/},{name:"branch",label:"Branch",example:"main"},{name:"tag",label:"Tag",example:"v1.2.3"},{name:"step",label:"Key of the step",example:"release"}],oneOf:["branch","tag"],rule:e=>({claimMatch:{issuer:m.issuer,subjectPattern:`organization:${r(e.org??"")}:pipeline:${r(e.pipeline??"")}:ref:${r(e.tag?`refs/tags/${e.tag}`:`refs/heads/${e.branch}`)}:commit:[^:]+:step:${e.step?r(e.step):".*"}`}}),name:e=>`buildkite-${e.org??""}-${e.pipeline??""}`,command:e=>`buildkite ${s(e,"org","pipeline","branch","tag","step")}`,paste:e=>`env:
  HOLDFAST_API: ${e.api}
  HOLDFAST_IDENTITY: ${e.identity}
steps:
  - key: release
    command: ${o(e)}
`},$=/^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$/,g={id:"kubernetes",title:"Kubernetes",issuer:"",fields:[{name:"issuer",label:"Issuer of the cluster",example:"https://oidc.example.com/cluster-1",required:!0},{name:"namespace",label:"Namespace",example:"shop",required:!0,shape:$},{name:"service-account",label:"Service account",example:"web",required:!0,shape:$}],rule:e=>({claimMatch:{issuer:e.issuer,subject:`system:serviceaccount:${e.namespace}:${e["service-account"]}`}}),name:e=>`kubernetes-${e.namespace??""}-${e["service-account"]??""}`,command:e=>`kubernetes ${s(e,"issuer","namespace","service-account")}`,paste:e=>`spec:
  containers:
    - name: web
      env:
        - {name: HOLDFAST_API, value: "${e.api}"}
        - {name: HOLDFAST_IDENTITY, value: ${e.identity}}
      volumeMounts:
        - {name: holdfast, mountPath: /var/run/secrets/holdfast, readOnly: true}
  volumes:
    - name: holdfast
      projected:
        sources:
          - serviceAccountToken: {path: token, audience: "${e.api}", expirationSeconds: 3600}
`},p={id:"aws",title:"AWS",issuer:"",fields:[{name:"aws-account",label:"Account",example:"123456789012",required:!0,shape:/^[0-9]{12}$/},{name:"aws-arn-pattern",label:"Pattern of ARNs",example:"arn:aws:sts::123456789012:assumed-role/build/.+",required:!0}],rule:e=>({awsIdentity:{awsAccount:e["aws-account"]??"",arnPattern:e["aws-arn-pattern"]}}),name:e=>`aws-${e["aws-account"]??""}`,command:e=>`${l(v(p.name(e)))} ${s(e,"aws-account","aws-arn-pattern")}`,paste:e=>`export HOLDFAST_API=${e.api}
eval "$(aws configure export-credentials --format env)"   # unless they are in variables already, as in Lambda
holdfast auth login --identity ${e.identity}
`},d={id:"other",title:"Anything else that has a token",issuer:"",fields:[{name:"issuer",label:"Issuer",example:"https://jenkins.example.com/oidc",required:!0},{name:"subject",label:"Subject",example:"job/release",required:!0}],rule:e=>({claimMatch:{issuer:e.issuer,subject:e.subject}}),name:e=>(e.subject??"").replace(/^.*\//,"")||"workload",command:e=>`${l(v(d.name(e)))} ${s(e,"issuer","subject")}`,paste:e=>`export HOLDFAST_API=${e.api}
export HOLDFAST_IDENTITY=${e.identity}
export HOLDFAST_IDENTITY_TOKEN_FILE=token.jwt   # for the audience ${e.api}; it is read again when it is needed
${o(e)}
`},T=[c,u,m,g,p,d],v=e=>e.toLowerCase().replace(/[^a-z0-9._-]+/g,"-").replace(/^-+|-+$/g,"").slice(0,60);function A(e){if(e.awsIdentity)return p;if(/^system:serviceaccount:/.test(e.claimMatch?.subject??e.staticKeys?.subject??""))return g;const t=e.claimMatch?.subject??e.claimMatch?.subjectPattern??"";return t.startsWith("repo:")?c:t.startsWith("project_path:")?u:t.startsWith("organization:")?m:d}const _=e=>e.lastSeenTime&&e.lastSeenTime!==e.createTime?e.lastSeenTime:void 0;function x(e,t){const a={};for(const n of e.fields){const i=t[n.name]??"";n.required&&!i?a[n.name]="is needed":i&&n.shape&&!n.shape.test(i)&&(a[n.name]=`is not of the form ${n.example}`)}const b=n=>n.map(i=>e.fields.find(w=>w.name===i)?.label.toLowerCase()).join(", ");return e.oneOf&&e.oneOf.filter(n=>t[n]).length!==1&&(a[e.oneOf[0]??""]=`give exactly one of ${b(e.oneOf)}: without one, everybody who can push would be let in`),e.anyOf&&!e.anyOf.some(n=>t[n])&&(a[e.anyOf[0]??""]=`give one or more of ${b(e.anyOf)}: without one, everybody who can push would be let in`),e.id==="gitlab"&&t.branch&&t.tag&&(a.tag="a job runs on a branch or a tag, not on both"),a}export{v as a,A as b,x as m,T as p,_ as s};
