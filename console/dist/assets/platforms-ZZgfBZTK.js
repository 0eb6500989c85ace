const x=[{id:"github",title:"GitHub Actions",issuer:"https://token.actions.githubusercontent.com",fields:[{name:"repo",help:"`OWNER/REPO` of the workflow",label:"Repository",example:"acme/web",default:"example/app",required:!0,pattern:"^[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+$"},{name:"ref",help:"git `REF` the job runs on, refs/… or a branch"},{name:"branch",help:"`BRANCH` the job runs on",label:"Branch",example:"main"},{name:"tag",help:"`TAG` the job runs on",label:"Tag",example:"v1.2.3"},{name:"environment",help:"`NAME` of the deployment environment of the job",label:"Environment",example:"production"},{name:"pull-request",help:"the job runs for pull requests"},{name:"owner-id",help:"numeric `ID` of the owner, which does not change with the name",label:"Number of the owner",example:"1",number:!0},{name:"repo-id",help:"numeric `ID` of the repository, which does not change with the name",label:"Number of the repository",example:"2",number:!0}],exactlyOne:["branch","environment","pull-request","ref","tag"],context:[{if:"branch",text:"ref:refs/heads/{branch}"},{if:"environment",text:"environment:{environment!}"},{if:"pull-request",text:"pull_request"},{if:"ref",text:"ref:{ref}"},{if:"tag",text:"ref:refs/tags/{tag}"}],name:"github-{repo}",subjects:[{pattern:"repo:{repo.0}(@{owner-id|[0-9]+})?/{repo.1}(@{repo-id|[0-9]+})?:{context}"}],claims:{repository_owner_id:"owner-id",repository_id:"repo-id"}},{id:"gitlab",title:"GitLab CI",issuer:"https://gitlab.com",fields:[{name:"project",help:"`PATH` of the project, including its groups",label:"Path of the project",example:"acme/web",default:"example/app",required:!0,pattern:"^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)+$"},{name:"branch",help:"`BRANCH` the job runs on",label:"Branch",example:"main"},{name:"tag",help:"`TAG` the job runs on",label:"Tag",example:"v1.2.3"},{name:"environment",help:"`NAME` of the environment the job deploys to",label:"Environment",example:"production"},{name:"protected",help:"the job runs on a protected branch or tag"},{name:"project-id",help:"numeric `ID` of the project, which does not change with its path",label:"Number of the project",example:"1",number:!0}],atLeastOne:["branch","tag","environment","protected"],notBoth:["branch","tag"],name:"gitlab-{project}",subjects:[{if:"branch",exact:"project_path:{project}:ref_type:branch:ref:{branch}"},{if:"tag",exact:"project_path:{project}:ref_type:tag:ref:{tag}"},{pattern:"project_path:{project}:ref_type:(branch|tag):ref:.+"}],claims:{environment:"environment",project_id:"project-id",ref_protected:"protected"}},{id:"buildkite",title:"Buildkite",issuer:"https://agent.buildkite.com",fields:[{name:"org",help:"`SLUG` of the organization",label:"Organization",example:"acme",default:"example",required:!0,pattern:"^[A-Za-z0-9_-]+$"},{name:"pipeline",help:"`SLUG` of the pipeline",label:"Pipeline",example:"web",default:"app",required:!0,pattern:"^[A-Za-z0-9_-]+$"},{name:"branch",help:"`BRANCH` of the build",label:"Branch",example:"main"},{name:"tag",help:"`TAG` of the build",label:"Tag",example:"v1.2.3"},{name:"step",help:"`KEY` of the step (default: any)",label:"Key of the step",example:"release",default:"build"}],exactlyOne:["branch","tag"],context:[{if:"branch",text:"refs/heads/{branch}"},{if:"tag",text:"refs/tags/{tag}"}],name:"buildkite-{org}-{pipeline}",subjects:[{pattern:"organization:{org}:pipeline:{pipeline}:ref:{context}:commit:[^:]+:step:{step|.*}"}]},{id:"kubernetes",title:"Kubernetes",issuer:"",fields:[{name:"issuer",label:"Issuer of the cluster",example:"https://oidc.example.com/cluster-1",required:!0},{name:"namespace",help:"`NAMESPACE` of the service account",label:"Namespace",example:"shop",default:"default",required:!0,pattern:"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"},{name:"service-account",help:"`NAME` of the service account of the pods",label:"Service account",example:"web",default:"builder",required:!0,pattern:"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"}],name:"kubernetes-{namespace}-{service-account}",subjects:[{exact:"system:serviceaccount:{namespace}:{service-account}"}]}],w=e=>e.replace(/[\\.+*?()|[\]{}^$]/g,"\\$&"),v=e=>{const n=Object.fromEntries(Object.entries(e).filter(([,a])=>a));return Object.keys(n).length>0?n:void 0},h=e=>/^[\w@%+=:,./-]+$/.test(e)?e:`'${e.replaceAll("'","'\\''")}'`,d=(e,...n)=>n.filter(a=>e[a]).map(a=>e[a]==="true"?`--${a}`:`--${a} ${h(e[a]??"")}`).join(" "),c=e=>`holdfast auth token --audience ${e.registry} | docker login -u _token --password-stdin ${e.registry}`;function l(e,n,a="",o=t=>t){return e.replace(/\{([a-z-]+)(?:\.([0-9]))?(!)?(?:\|([^}]*))?\}/g,(t,r,i,p,m)=>{let s=(r==="context"?a:n[r])??"";return i&&(s=s.split("/")[Number(i)]??""),p&&(s=s.replaceAll(":","%3A")),s?o(s):m??""})}const f=e=>n=>!n.if||!!e[n.if];function $(e,n){const a=e.fields.flatMap(t=>{if(!t.label)return[];const r=t.number?"^[0-9]*$":t.pattern;return[{name:t.name,label:t.label,example:t.example??"",required:t.required,shape:r?new RegExp(r):void 0}]}),o=t=>t&&a.map(r=>r.name).filter(r=>t.includes(r));return{id:e.id,title:e.title,issuer:e.issuer,fields:a,oneOf:o(e.exactlyOne),anyOf:o(e.atLeastOne),notBoth:o(e.notBoth),rule:t=>{const r=l(e.context?.find(f(t))?.text??"",t),i=e.subjects.find(f(t)),p=Object.entries(e.claims??{}).map(([m,s])=>[m,t[s??""]??""]);return{claimMatch:{issuer:e.issuer||t.issuer,...i?.pattern?{subjectPattern:l(i.pattern,t,r,w)}:{subject:l(i?.exact??"",t,r)},claims:v(Object.fromEntries(p))}}},name:t=>l(e.name,t),command:t=>`${e.id} ${d(t,...a.map(r=>r.name))}`,paste:n}}const A={github:e=>`permissions:
  contents: read
  id-token: write                 # without it the runner has no token to give
jobs:
  build:
    runs-on: ubuntu-latest
    env:
      HOLDFAST_API: ${e.api}
      HOLDFAST_IDENTITY: ${e.identity}
    steps:
      - run: ${c(e)}
`,gitlab:e=>`build:
  id_tokens:
    HOLDFAST_ID_TOKEN:
      aud: ${e.api}
  variables:
    HOLDFAST_API: ${e.api}
    HOLDFAST_IDENTITY: ${e.identity}
  script:
    - ${c(e)}
`,buildkite:e=>`env:
  HOLDFAST_API: ${e.api}
  HOLDFAST_IDENTITY: ${e.identity}
steps:
  - key: release
    command: ${c(e)}
`,kubernetes:e=>`spec:
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
`},b={id:"aws",title:"AWS",issuer:"",fields:[{name:"aws-account",label:"Account",example:"123456789012",required:!0,shape:/^[0-9]{12}$/},{name:"aws-arn-pattern",label:"Pattern of ARNs",example:"arn:aws:sts::123456789012:assumed-role/build/.+",required:!0}],rule:e=>({awsIdentity:{awsAccount:e["aws-account"]??"",arnPattern:e["aws-arn-pattern"]}}),name:e=>`aws-${e["aws-account"]??""}`,command:e=>`${h(g(b.name(e)))} ${d(e,"aws-account","aws-arn-pattern")}`,paste:e=>`export HOLDFAST_API=${e.api}
eval "$(aws configure export-credentials --format env)"   # unless they are in variables already, as in Lambda
holdfast auth login --identity ${e.identity}
`},u={id:"other",title:"Anything else that has a token",issuer:"",fields:[{name:"issuer",label:"Issuer",example:"https://jenkins.example.com/oidc",required:!0},{name:"subject",label:"Subject",example:"job/release",required:!0}],rule:e=>({claimMatch:{issuer:e.issuer,subject:e.subject}}),name:e=>(e.subject??"").replace(/^.*\//,"")||"workload",command:e=>`${h(g(u.name(e)))} ${d(e,"issuer","subject")}`,paste:e=>`export HOLDFAST_API=${e.api}
export HOLDFAST_IDENTITY=${e.identity}
export HOLDFAST_IDENTITY_TOKEN_FILE=token.jwt   # for the audience ${e.api}; it is read again when it is needed
${c(e)}
`},y=[...x.map(e=>$(e,A[e.id]??(()=>""))),b,u],g=e=>e.toLowerCase().replace(/[^a-z0-9._-]+/g,"-").replace(/^-+|-+$/g,"").slice(0,60);function j(e){if(e.awsIdentity)return b;const n=o=>y.find(t=>t.id===o)??u;if(/^system:serviceaccount:/.test(e.claimMatch?.subject??e.staticKeys?.subject??""))return n("kubernetes");const a=e.claimMatch?.subject??e.claimMatch?.subjectPattern??"";return a.startsWith("repo:")?n("github"):a.startsWith("project_path:")?n("gitlab"):a.startsWith("organization:")?n("buildkite"):u}const O=e=>e.lastSeenTime&&e.lastSeenTime!==e.createTime?e.lastSeenTime:void 0;function T(e,n){const a={};for(const t of e.fields){const r=n[t.name]??"";t.required&&!r?a[t.name]="is needed":r&&t.shape&&!t.shape.test(r)&&(a[t.name]=`is not of the form ${t.example}`)}const o=t=>t.map(r=>e.fields.find(i=>i.name===r)?.label.toLowerCase()).join(", ");return e.oneOf&&e.oneOf.filter(t=>n[t]).length!==1&&(a[e.oneOf[0]??""]=`give exactly one of ${o(e.oneOf)}: without one, everybody who can push would be let in`),e.anyOf&&!e.anyOf.some(t=>n[t])&&(a[e.anyOf[0]??""]=`give one or more of ${o(e.anyOf)}: without one, everybody who can push would be let in`),e.notBoth?.length&&e.notBoth.every(t=>n[t])&&(a[e.notBoth[1]??""]=`a job runs on a ${e.notBoth.join(" or a ")}, not on both`),a}export{g as a,j as b,T as m,y as p,O as s};
