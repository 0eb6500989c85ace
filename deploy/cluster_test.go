package deploy_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/yaml"
)

// A cluster is an API server of Kubernetes with etcd, without nodes and controllers. `make kubernetes` builds both.
type cluster struct {
	t            *testing.T
	url          string
	client       *http.Client
	certificates string // folder with the certificate of the API server
}

const clusterIssuer = "https://cluster.test"

// newCluster starts a cluster. It skips the test if the programs were not built.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	folder, err := filepath.Abs("../bin/test")
	if err != nil {
		t.Fatal(err)
	}
	server, store := filepath.Join(folder, "kube-apiserver"), filepath.Join(folder, "etcd")
	for _, program := range []string{server, store} {
		if _, err := os.Stat(program); err != nil {
			t.Skipf("%v; make kubernetes builds it", err)
		}
	}
	dir, client, peer, port := t.TempDir(), freePort(t), freePort(t), freePort(t)
	background(t, store, "--data-dir", filepath.Join(dir, "etcd"), "--unsafe-no-fsync", "--log-level", "error",
		"--listen-client-urls", "http://127.0.0.1:"+client, "--advertise-client-urls", "http://127.0.0.1:"+client,
		"--listen-peer-urls", "http://127.0.0.1:"+peer, "--initial-advertise-peer-urls", "http://127.0.0.1:"+peer,
		"--initial-cluster", "default=http://127.0.0.1:"+peer)
	tokens, key := filepath.Join(dir, "tokens.csv"), filepath.Join(dir, "accounts.key")
	write(t, tokens, `admin,admin,1,"system:masters"`)
	write(t, key, newKey(t))
	background(t, server, "--etcd-servers", "http://127.0.0.1:"+client, "--bind-address", "127.0.0.1",
		"--secure-port", port, "--cert-dir", filepath.Join(dir, "certificates"), "--token-auth-file", tokens,
		"--service-account-issuer", clusterIssuer, "--service-account-key-file", key,
		"--service-account-signing-key-file", key, "--service-cluster-ip-range", "10.0.0.0/24",
		"--authorization-mode", "RBAC", "--endpoint-reconciler-type", "none", "-v", "0")
	own := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // the certificate belongs to this test
	certificates := filepath.Join(dir, "certificates")
	c := &cluster{t: t, url: "https://127.0.0.1:" + port, certificates: certificates, client: &http.Client{
		Timeout: time.Minute, Transport: &http.Transport{TLSClientConfig: own, MaxIdleConnsPerHost: 16},
	}}
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(200 * time.Millisecond) {
		if status, _, err := c.send(http.MethodGet, "/readyz", "", ""); err == nil && status == http.StatusOK {
			return c
		}
		if time.Now().After(deadline) {
			t.Fatal("the API server is not ready after three minutes")
		}
	}
}

// background runs a program until the test ends.
func background(t *testing.T, program string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program, args...)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.Discard, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s: %s", filepath.Base(program), log.Bytes()[max(0, log.Len()-3000):])
		}
	})
	return cmd
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// newKey returns a key in PEM.
func newKey(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
}

// send sends a request to the API server as an administrator.
func (c *cluster) send(method, path, contentType, body string) (status int, text []byte, _ error) {
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.url+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	r.Header.Set("Authorization", "Bearer admin")
	r.Header.Set("Content-Type", cmp.Or(contentType, "application/json"))
	resp, err := c.client.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	text, err = io.ReadAll(resp.Body)
	return resp.StatusCode, text, err
}

// must sends a request that succeeds, and returns the answer.
func (c *cluster) must(method, path, body string) []byte {
	c.t.Helper()
	status, text, err := c.send(method, path, "", body)
	if err != nil || status >= http.StatusBadRequest {
		c.t.Fatalf("%s %s: %d %s %v", method, path, status, text, err)
	}
	return text
}

// collections are the paths of the objects that the chart has, by kind. NAMESPACE stands for the namespace.
var collections = map[string]string{
	"Namespace":                      "/api/v1/namespaces",
	"Pod":                            "/api/v1/namespaces/NAMESPACE/pods",
	"Service":                        "/api/v1/namespaces/NAMESPACE/services",
	"ServiceAccount":                 "/api/v1/namespaces/NAMESPACE/serviceaccounts",
	"ClusterRole":                    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
	"ClusterRoleBinding":             "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
	"Deployment":                     "/apis/apps/v1/namespaces/NAMESPACE/deployments",
	"PodDisruptionBudget":            "/apis/policy/v1/namespaces/NAMESPACE/poddisruptionbudgets",
	"NetworkPolicy":                  "/apis/networking.k8s.io/v1/namespaces/NAMESPACE/networkpolicies",
	"ValidatingWebhookConfiguration": "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
	"MutatingWebhookConfiguration":   "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
}

// create creates an object from YAML or JSON, after change. Fields that the API server does not know are an error.
func (c *cluster) create(namespace, document string, change func(map[string]any)) {
	c.t.Helper()
	var object map[string]any
	if err := yaml.Unmarshal([]byte(document), &object); err != nil {
		c.t.Fatal(err)
	}
	if change != nil {
		change(object)
	}
	text, err := json.Marshal(object)
	if err != nil {
		c.t.Fatal(err)
	}
	kind := fmt.Sprint(object["kind"])
	path, ok := collections[kind]
	if !ok {
		c.t.Fatalf("the test does not know where objects of the kind %s are", kind)
	}
	c.must(http.MethodPost, strings.Replace(path, "NAMESPACE", namespace, 1)+"?fieldValidation=Strict", string(text))
}

// namespace creates a namespace with a service account, and with a mode unless it is "".
func (c *cluster) namespace(name, mode string) {
	c.t.Helper()
	labels := map[string]string{}
	if mode != "" {
		labels["holdfast.dev/admission"] = mode
	}
	text, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name, "labels": labels},
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.create("", string(text), nil)
	c.create(name, `{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}`, nil)
}

// token requests a token of a service account.
func (c *cluster) token(namespace, account, audience string) string {
	c.t.Helper()
	text := c.must(http.MethodPost, "/api/v1/namespaces/"+namespace+"/serviceaccounts/"+account+"/token",
		fmt.Sprintf(`{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
			"spec": {"audiences": [%q], "expirationSeconds": 3600}}`, audience))
	var answer struct{ Status struct{ Token string } }
	if err := json.Unmarshal(text, &answer); err != nil || answer.Status.Token == "" {
		c.t.Fatalf("TokenRequest: %s %v", text, err)
	}
	return answer.Status.Token
}

// pod tries to create a pod with an image, and returns the status and the message of a refusal.
func (c *cluster) pod(namespace, name, image string) (status int, message string) {
	c.t.Helper()
	status, text, err := c.send(http.MethodPost, strings.Replace(collections["Pod"], "NAMESPACE", namespace, 1), "",
		fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": %q},
			"spec": {"containers": [{"name": "web", "image": %q}]}}`, name, image))
	if err != nil {
		c.t.Fatal(err)
	}
	var answer struct{ Message string }
	_ = json.Unmarshal(text, &answer)
	return status, answer.Message
}

// remove deletes a pod at once.
func (c *cluster) remove(namespace, name string) {
	c.t.Helper()
	c.must(http.MethodDelete, strings.Replace(collections["Pod"], "NAMESPACE", namespace, 1)+"/"+name+
		"?gracePeriodSeconds=0", "")
}
