package deploy_test

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	admission "k8s.io/api/admissionregistration/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	podsecurity "k8s.io/pod-security-admission/api"
	podpolicy "k8s.io/pod-security-admission/policy"
)

const kubeChart = "helm/holdfast-kube"

// kubeValues are values of the chart for clusters: the least that it needs, and everything.
var kubeValues = map[string]map[string]any{
	"least": {
		"server": "https://holdfast.example.com", "identity": "41c2bd/9f3a", "tls": map[string]any{"issuer": "cluster"},
	},
	"most": {
		"server": "https://holdfast.example.com", "identity": "41c2bd/9f3a", "mode": "enforce", "replaceTags": true,
		"registries": []any{"registry.example.com", "mirror.example.com:5000"}, "platforms": []any{"linux/amd64"},
		"tls": map[string]any{"existingSecret": "webhook", "caBundle": "-----BEGIN CERTIFICATE-----"},
		"actions": map[string]any{"unknown": "refuse", "unreachable": "allow", "others": []any{
			map[string]any{"prefix": "", "action": "refuse"}, map[string]any{"prefix": "docker.io/library/", "action": "warn"},
		}},
		"inventory":        map[string]any{"enabled": true, "group": "41c2bd", "place": "prod-eu"},
		"imagePullSecrets": []any{map[string]any{"name": "pull"}},
		"networkPolicy":    map[string]any{"from": []any{map[string]any{"ipBlock": map[string]any{"cidr": "10.0.0.0/8"}}}},
	},
}

// kubeObjects renders the chart for clusters. It leaves out the certificate of cert-manager, because its type is not
// here.
func kubeObjects(t *testing.T, values map[string]any) []runtime.Object {
	t.Helper()
	documents, err := renderChart(t, kubeChart, values)
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, slices.DeleteFunc(documents, func(d []byte) bool {
		return bytes.Contains(d, []byte("kind: Certificate\n"))
	}))
}

func TestKubeChartLints(t *testing.T) {
	for name, values := range kubeValues {
		result := lint.RunAll(kubeChart, values, "security", lint.WithKubeVersion(&common.KubeVersion{
			Version: "v1.34.0", Major: "1", Minor: "34",
		}))
		for _, m := range result.Messages {
			if !strings.Contains(m.Error(), "icon is recommended") {
				t.Errorf("%s: %v", name, m)
			}
		}
	}
}

// TestKubePod: the pod is restricted, cannot call the API server, and starts with arguments that the program knows.
func TestKubePod(t *testing.T) {
	folder, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	evaluator, err := podpolicy.NewEvaluator(podpolicy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range kubeValues {
		all := kubeObjects(t, values)
		level := podsecurity.LevelVersion{Level: podsecurity.LevelRestricted, Version: podsecurity.LatestVersion()}
		for _, d := range objectsOf[apps.Deployment](all) {
			pod := d.Spec.Template
			result := podpolicy.AggregateCheckResults(evaluator.EvaluatePod(level, &pod.ObjectMeta, &pod.Spec))
			if !result.Allowed {
				t.Error(name, d.Name, result.ForbiddenDetail())
			}
		}
		pod := objectsOf[apps.Deployment](all)[0].Spec.Template
		if token := pod.Spec.AutomountServiceAccountToken; token == nil || *token {
			t.Errorf("%s: the pod gets a token of the API server", name)
		}
		args := append(slices.Clone(pod.Spec.Containers[0].Args), "--tls-cert=/nowhere")
		out, err := exec.CommandContext(t.Context(), filepath.Join(folder, "holdfast-kube"), args...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "read the certificate: stat /nowhere") {
			t.Errorf("%s: the program does not accept %v: %s", name, args, out)
		}
	}
}

// TestKubeSelectors: the selectors select the pod, and the webhook calls the service.
func TestKubeSelectors(t *testing.T) {
	for name, values := range kubeValues {
		all := kubeObjects(t, values)
		pod := labels.Set(objectsOf[apps.Deployment](all)[0].Spec.Template.Labels)
		service := objectsOf[core.Service](all)[0]
		selectors := []*meta.LabelSelector{
			objectsOf[apps.Deployment](all)[0].Spec.Selector, objectsOf[policy.PodDisruptionBudget](all)[0].Spec.Selector,
			&objectsOf[networking.NetworkPolicy](all)[0].Spec.PodSelector, {MatchLabels: service.Spec.Selector},
		}
		for i, s := range selectors {
			if got, err := meta.LabelSelectorAsSelector(s); err != nil || got.Empty() || !got.Matches(pod) {
				t.Errorf("%s: selector %d does not select the pod: %v %v", name, i, s, err)
			}
		}
		for _, hook := range objectsOf[admission.ValidatingWebhookConfiguration](all)[0].Webhooks {
			if s := hook.ClientConfig.Service; s.Name != service.Name || s.Namespace != "holdfast" {
				t.Errorf("%s: the webhook calls %v", name, s)
			}
		}
	}
}

// TestKubeModes: the label of a namespace selects one mode. Exempt namespaces, and the one of the chart, have none.
func TestKubeModes(t *testing.T) {
	for _, standard := range []string{"enforce", "warn", "audit", "off"} {
		all := kubeObjects(t, util.CoalesceTables(map[string]any{"mode": standard}, kubeValues["least"]))
		hooks := objectsOf[admission.ValidatingWebhookConfiguration](all)[0].Webhooks
		modeOf := func(namespace string, label ...string) (modes []string) {
			set := labels.Set{"kubernetes.io/metadata.name": namespace}
			for _, value := range label {
				set["holdfast.dev/admission"] = value
			}
			for _, hook := range hooks {
				selector, err := meta.LabelSelectorAsSelector(hook.NamespaceSelector)
				if err != nil {
					t.Fatal(err)
				}
				if selector.Matches(set) {
					modes = append(modes, strings.TrimPrefix(*hook.ClientConfig.Service.Path, "/validate/"))
				}
			}
			return modes
		}
		check := func(what string, got []string, want string) {
			t.Helper()
			if strings.Join(got, " ") != strings.Replace(want, "off", "", 1) {
				t.Errorf("the standard mode is %s: %s is checked with %v, want %s", standard, what, got, want)
			}
		}
		check("a namespace", modeOf("shop"), standard)
		for _, label := range []string{"enforce", "warn", "audit", "off"} {
			check(fmt.Sprintf("a namespace with the label %s", label), modeOf("shop", label), label)
		}
		check("kube-system", modeOf("kube-system", "enforce"), "")
		check("the namespace of the chart", modeOf("holdfast", "enforce"), "")
	}
}

func TestKubeChartRefuses(t *testing.T) {
	type values = map[string]any
	for name, tt := range map[string]struct {
		change values
		want   string
	}{
		"no server":                {values{"server": ""}, "server"},
		"no identity":              {values{"identity": ""}, "identity"},
		"a value it does not know": {values{"replica": 3}, "replica"},
		"an unknown mode":          {values{"mode": "deny"}, "mode"},
		"an unknown action":        {values{"actions": values{"unknown": "deny"}}, "unknown"},
		"no place": {
			values{"inventory": values{"enabled": true, "group": "41c2bd"}}, "inventory: group and place",
		},
		"no certificate": {values{"tls": values{"issuer": ""}}, "tls: name a Secret"},
		"no authority":   {values{"tls": values{"existingSecret": "webhook"}}, "tls.caBundle"},
	} {
		if _, err := renderChart(t, kubeChart, util.CoalesceTables(tt.change, kubeValues["least"])); err == nil ||
			!strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want an error with %q", name, err, tt.want)
		}
	}
}
