package iam

import (
	"cmp"
	"regexp"

	"github.com/spf13/pflag"
)

func kubernetes() preset {
	return preset{
		use: "kubernetes", platform: "Kubernetes",
		example: "  holdfast iam identities create kubernetes --issuer https://oidc.example.com/cluster-1 \\\n" +
			"    --namespace shop --service-account web --parent acme/platform --role viewer\n" +
			"  kubectl get --raw /openid/v1/jwks > keys.json   # of a cluster that the server cannot reach\n" +
			"  holdfast iam identities create kubernetes --issuer https://kubernetes.default.svc.cluster.local \\\n" +
			"    --issuer-keys-file keys.json --namespace shop --service-account web",
		dev: "--namespace shop --service-account web",
		job: func(f *pflag.FlagSet) job {
			j := &kubernetesPod{}
			f.StringVar(&j.namespace, "namespace", "", "`NAMESPACE` of the service account")
			f.StringVar(&j.account, "service-account", "", "`NAME` of the service account that the pods have")
			return j
		},
	}
}

type kubernetesPod struct{ namespace, account string }

var dnsName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`)

func (p *kubernetesPod) subject() string {
	return "system:serviceaccount:" + p.namespace + ":" + p.account
}

func (p *kubernetesPod) check() error {
	if err := matching("namespace", p.namespace, dnsName, "shop"); err != nil {
		return err
	}
	return matching("service-account", p.account, dnsName, "web")
}

func (p *kubernetesPod) rule() (rule, error) {
	return rule{name: "kubernetes-" + p.namespace + "-" + p.account, subject: p.subject()}, p.check()
}

func (p *kubernetesPod) claims() (map[string]any, error) {
	p.namespace, p.account = cmp.Or(p.namespace, "default"), cmp.Or(p.account, "builder")
	about := map[string]any{"namespace": p.namespace, "serviceaccount": map[string]any{"name": p.account}}
	return map[string]any{"sub": p.subject(), "kubernetes.io": about}, p.check()
}
