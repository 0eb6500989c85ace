package deploy_test

import (
	"crypto/x509"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	podsecurity "k8s.io/pod-security-admission/api"
	podpolicy "k8s.io/pod-security-admission/policy"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
)

// eachExample runs a test for the objects and the pod of every values file.
func eachExample(t *testing.T, f func(t *testing.T, all []runtime.Object, d *apps.Deployment, c core.Container)) {
	for name, values := range examples(t) {
		t.Run(name, func(t *testing.T) {
			all := objects(t, values)
			d := objectsOf[apps.Deployment](all)[0]
			if n := len(d.Spec.Template.Spec.Containers); n != 1 {
				t.Fatalf("%d containers, want one", n)
			}
			f(t, all, d, d.Spec.Template.Spec.Containers[0])
		})
	}
}

// TestPodIsRestricted checks pods with the code that enforces the profile "restricted" in
// Kubernetes.
func TestPodIsRestricted(t *testing.T) {
	evaluator, err := podpolicy.NewEvaluator(podpolicy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	level := podsecurity.LevelVersion{Level: podsecurity.LevelRestricted, Version: podsecurity.LatestVersion()}
	eachExample(t, func(t *testing.T, all []runtime.Object, d *apps.Deployment, c core.Container) {
		pod := d.Spec.Template
		result := podpolicy.AggregateCheckResults(evaluator.EvaluatePod(level, &pod.ObjectMeta, &pod.Spec))
		if !result.Allowed {
			t.Error(result.ForbiddenDetail())
		}
		if ro := c.SecurityContext.ReadOnlyRootFilesystem; ro == nil || !*ro {
			t.Error("the root file system can be written to")
		}
		if token := pod.Spec.AutomountServiceAccountToken; token == nil || *token {
			t.Error("the pod gets a token of the cluster")
		}
		for _, account := range objectsOf[core.ServiceAccount](all) {
			if token := account.AutomountServiceAccountToken; token == nil || *token {
				t.Error("the service account hands out tokens")
			}
		}
	})
}

// TestPodHasNoSecrets checks that secret values come from Kubernetes Secrets, and that
// every environment variable is a setting.
func TestPodHasNoSecrets(t *testing.T) {
	secrets := []string{
		"HOLDFAST_DATABASE", "HOLDFAST_ENCRYPTION_KEY", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
		"OTEL_EXPORTER_OTLP_HEADERS",
	}
	eachExample(t, func(t *testing.T, _ []runtime.Object, _ *apps.Deployment, c core.Container) {
		if len(c.Args)+len(c.Command) > 0 {
			t.Errorf("settings on the command line: %v %v", c.Command, c.Args)
		}
		seen := map[string]bool{}
		for _, v := range c.Env {
			checkKnown(t, v.Name)
			if seen[v.Name] {
				t.Errorf("%s is set twice", v.Name)
			}
			seen[v.Name] = true
			if slices.Contains(secrets, v.Name) != (v.ValueFrom != nil && v.ValueFrom.SecretKeyRef != nil) {
				t.Errorf("%s is %q, from %v", v.Name, v.Value, v.ValueFrom)
			}
		}
	})
}

// TestPodGoesQuietly checks that a stopping pod still serves until clients have noticed,
// and has time to finish its requests. A new pod must start before it stops.
func TestPodGoesQuietly(t *testing.T) {
	eachExample(t, func(t *testing.T, _ []runtime.Object, d *apps.Deployment, c core.Container) {
		grace, err := time.ParseDuration(environOf(c)["HOLDFAST_SHUTDOWN_GRACE"])
		if err != nil {
			t.Fatal(err)
		}
		delay, err := time.ParseDuration(environOf(c)["HOLDFAST_SHUTDOWN_DELAY"])
		if err != nil {
			t.Fatal(err)
		}
		patience := time.Duration(*d.Spec.Template.Spec.TerminationGracePeriodSeconds) * time.Second
		if patience <= delay+grace {
			t.Errorf("the pod is killed after %v, but may need %v + %v", patience, delay, grace)
		}
		if _, onPostgres := environOf(c)["HOLDFAST_DATABASE"]; !onPostgres {
			if d.Spec.Strategy.Type != apps.RecreateDeploymentStrategyType {
				t.Errorf("strategy = %s, but two pods cannot open one SQLite file", d.Spec.Strategy.Type)
			}
			return
		}
		if none := d.Spec.Strategy.RollingUpdate.MaxUnavailable; *none != intstr.FromInt32(0) {
			t.Errorf("maxUnavailable = %v, want 0", none)
		}
	})
}

// TestObjectsFitTogether checks that all selectors of pods, services and ports match.
func TestObjectsFitTogether(t *testing.T) {
	eachExample(t, func(t *testing.T, all []runtime.Object, d *apps.Deployment, _ core.Container) {
		pod := labels.Set(d.Spec.Template.Labels)
		selectors := []*meta.LabelSelector{d.Spec.Selector}
		for _, b := range objectsOf[policy.PodDisruptionBudget](all) {
			selectors = append(selectors, b.Spec.Selector)
		}
		for _, p := range objectsOf[networking.NetworkPolicy](all) {
			selectors = append(selectors, &p.Spec.PodSelector)
		}
		for _, s := range d.Spec.Template.Spec.TopologySpreadConstraints {
			selectors = append(selectors, s.LabelSelector)
		}
		services := map[string]*core.Service{}
		for _, s := range objectsOf[core.Service](all) {
			services[s.Name] = s
			selectors = append(selectors, &meta.LabelSelector{MatchLabels: s.Spec.Selector})
			if len(s.Spec.Ports) != 1 {
				t.Errorf("service %s has %d ports", s.Name, len(s.Spec.Ports))
			}
		}
		for _, selector := range selectors {
			if s, err := meta.LabelSelectorAsSelector(selector); err != nil || s.Empty() || !s.Matches(pod) {
				t.Errorf("%v does not select the pod: %v", selector, err)
			}
		}
		for _, m := range objectsOf[monitoring.ServiceMonitor](all) {
			if s, err := meta.LabelSelectorAsSelector(&m.Spec.Selector); err != nil ||
				!s.Matches(labels.Set(services["holdfast-metrics"].Labels)) || s.Matches(labels.Set(services["holdfast"].Labels)) {
				t.Errorf("%v does not select the metrics service alone: %v", m.Spec.Selector, err)
			}
		}
		for _, r := range objectsOf[gateway.HTTPRoute](all) {
			to := r.Spec.Rules[0].BackendRefs[0]
			if s := services[string(to.Name)]; s == nil || s.Spec.Ports[0].Port != *to.Port {
				t.Errorf("the route leads to %s:%d", to.Name, *to.Port)
			}
		}
	})
}

// environOf returns the environment variables of a container. A variable whose value
// comes from a Secret has the value "".
func environOf(c core.Container) map[string]string {
	all := map[string]string{}
	for _, v := range c.Env {
		all[v.Name] = v.Value
	}
	return all
}

// TestPodServes runs holdfastd with the variables of the pod, on SQLite, and sends the
// probes of the cluster.
func TestPodServes(t *testing.T) {
	eachExample(t, func(t *testing.T, all []runtime.Object, _ *apps.Deployment, c core.Container) {
		variables, scheme := environOf(c), "http"
		instead := local(t)
		if _, ok := variables["HOLDFAST_ENCRYPTION_KEY"]; ok {
			instead["HOLDFAST_ENCRYPTION_KEY"] = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
		}
		if _, ok := variables["HOLDFAST_TLS_CERT"]; ok {
			scheme = "https"
			instead["HOLDFAST_TLS_CERT"], instead["HOLDFAST_TLS_KEY"] = certificate(t)
		}
		s := start(t, environ(variables, instead))
		for name, probe := range map[string]*core.Probe{
			"startup": c.StartupProbe, "liveness": c.LivenessProbe, "readiness": c.ReadinessProbe,
		} {
			if got := strings.ToLower(string(probe.HTTPGet.Scheme)); got != scheme {
				t.Errorf("%s asks over %s, and the pod serves %s", name, got, scheme)
			}
			if status, body := s.get(scheme + "://" + s.address + probe.HTTPGet.Path); status != 200 {
				t.Errorf("%s: %d %s", name, status, body)
			}
		}
		for _, m := range objectsOf[monitoring.ServiceMonitor](all) {
			path := m.Spec.Endpoints[0].Path
			if status, _ := s.get("http://" + s.metrics + path); status != 200 {
				t.Errorf("%s at the port of metrics: %d", path, status)
			}
			if status, _ := s.get(scheme + "://" + s.address + path); status == 200 {
				t.Errorf("%s is public", path)
			}
		}
	})
}

// certificate returns the paths of a new certificate and of its key.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	pair := s.TLS.Certificates[0]
	private, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	write := func(name, kind string, content []byte) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("tls.crt", "CERTIFICATE", pair.Certificate[0]), write("tls.key", "PRIVATE KEY", private)
}
