package deploy_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
)

var pods = flag.Int("pods", 100, "number of pods that TestCluster creates under load")

// A guarded is a cluster whose API server asks holdfast-kube, and the Holdfast that it asks.
type guarded struct {
	*cluster
	server  *holdfastd
	data    string // data folder of the server
	address string // address of holdfast-kube
	args    []string
	dev     struct{ BaseURL, RegistryHost, Token, RegistryToken, OrganizationUID string }
	webhook *exec.Cmd
	image   string
}

// holdfast runs the command as the owner.
func (g *guarded) holdfast(args ...string) string {
	g.t.Helper()
	cmd := exec.CommandContext(g.t.Context(), program(g.t, "holdfast"), args...)
	cmd.Env = []string{"HOME=" + g.t.TempDir(), "HOLDFAST_API=" + g.dev.BaseURL, "HOLDFAST_TOKEN=" + g.dev.Token}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		g.t.Fatalf("holdfast %v: %v\n%s", args, err, &stderr)
	}
	return strings.TrimSpace(string(out))
}

// push pushes an image with one empty layer, and returns its reference.
func (g *guarded) push(repo, tag string) string {
	g.t.Helper()
	put := func(method, path, contentType, body string) {
		r, err := http.NewRequestWithContext(g.t.Context(), method, g.dev.BaseURL+"/v2/"+repo+path, strings.NewReader(body))
		if err != nil {
			g.t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+g.dev.RegistryToken)
		r.Header.Set("Content-Type", contentType)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			g.t.Fatal(err)
		}
		defer resp.Body.Close()
		if text, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusCreated {
			g.t.Fatalf("%s %s: %d %s", method, path, resp.StatusCode, text)
		}
	}
	digest := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return "sha256:" + hex.EncodeToString(sum[:])
	}
	config := fmt.Sprintf(`{"architecture":"amd64","os":"linux","rootfs":{"type":"layers","diff_ids":[]},"author":%q}`,
		tag)
	put(http.MethodPost, "/blobs/uploads/?digest="+digest(config), "application/octet-stream", config)
	const manifestType = "application/vnd.oci.image.manifest.v1+json"
	put(http.MethodPut, "/manifests/"+tag, manifestType, fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"config":{
		"mediaType":"application/vnd.oci.image.config.v1+json","digest":%q,"size":%d},"layers":[]}`,
		manifestType, digest(config), len(config)))
	return g.dev.RegistryHost + "/" + repo + ":" + tag
}

// newGuarded starts a cluster and Holdfast, creates the objects of the chart, and starts holdfast-kube with the
// arguments of its pod and a token of its service account. Only addresses and files differ from a pod.
func newGuarded(t *testing.T) *guarded {
	t.Helper()
	g := &guarded{cluster: newCluster(t), address: "127.0.0.1:" + freePort(t), data: t.TempDir()}
	g.startServer("127.0.0.1:0")
	g.image = g.push("dev/app", "v1")
	const account = "holdfast-holdfast-kube" // the name of the release, and the name of the chart
	keys := filepath.Join(t.TempDir(), "keys.json")
	write(t, keys, string(g.must(http.MethodGet, "/openid/v1/jwks", "")))
	identity := g.holdfast("iam", "identities", "create", "kubernetes", "cluster", "--issuer", clusterIssuer,
		"--issuer-keys-file", keys, "--namespace", "holdfast", "--service-account", account, "--parent", "dev",
		"--role", "registry.pull", "-o", "id")
	g.namespace("holdfast", "")
	values := map[string]any{
		"server": g.dev.BaseURL, "identity": identity, "mode": "off", "replaceTags": true, "keep": "1m",
		"registries": []any{g.dev.RegistryHost},
		"tls":        map[string]any{"existingSecret": "tls", "caBundle": "to be replaced"},
	}
	cert, key, bundle := g.certificate()
	documents, err := renderChart(t, kubeChart, values)
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range documents {
		g.create("holdfast", string(document), func(object map[string]any) { g.point(object, bundle) })
	}
	token := filepath.Join(t.TempDir(), "token")
	write(t, token, g.token("holdfast", account, g.dev.BaseURL))
	deployment := objectsOf[apps.Deployment](kubeObjects(t, values))[0]
	g.args = append(slices.Clone(deployment.Spec.Template.Spec.Containers[0].Args), "--listen="+g.address,
		"--metrics=127.0.0.1:0", "--tls-cert="+cert, "--tls-key="+key, "--token-file="+token)
	g.startWebhook()
	g.namespace("shop", "enforce")
	g.namespace("lab", "warn")
	g.namespace("free", "")
	return g
}

// startServer starts Holdfast at an address.
func (g *guarded) startServer(address string) {
	g.t.Helper()
	settings := local(g.t)
	settings["HOLDFAST_LISTEN"], settings["HOLDFAST_DATA_DIR"] = address, g.data
	g.server = start(g.t, environ(settings), "--dev")
	if err := json.Unmarshal([]byte(read(g.t, filepath.Join(g.data, "dev.json"))), &g.dev); err != nil {
		g.t.Fatal(err)
	}
}

// point lets a webhook configuration call the running program, because no network leads to the service.
func (g *guarded) point(object map[string]any, bundle []byte) {
	hooks, _ := object["webhooks"].([]any)
	for _, hook := range hooks {
		config := hook.(map[string]any)["clientConfig"].(map[string]any)
		path := config["service"].(map[string]any)["path"].(string)
		config["url"], config["caBundle"] = "https://"+g.address+path, base64.StdEncoding.EncodeToString(bundle)
		delete(config, "service")
	}
}

// certificate returns the files of a certificate for the webhook, and its authority in PEM.
func (g *guarded) certificate() (cert, key string, bundle []byte) {
	g.t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		g.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		g.t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		g.t.Fatal(err)
	}
	dir := g.t.TempDir()
	cert, key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	bundle = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	write(g.t, cert, string(bundle))
	write(g.t, key, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})))
	return cert, key, bundle
}

// startWebhook starts holdfast-kube, and waits until it listens.
func (g *guarded) startWebhook() {
	g.t.Helper()
	g.webhook = background(g.t, program(g.t, "holdfast-kube"), g.args...)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		conn, err := new(net.Dialer).DialContext(g.t.Context(), "tcp", g.address)
		if err == nil {
			_ = conn.Close()
			return
		}
		if time.Now().After(deadline) {
			g.t.Fatal("holdfast-kube does not listen after a minute")
		}
	}
}

// tries creates a pod, and compares the result with the wanted message, which is "" if the pod is created.
func (g *guarded) tries(what, namespace, image, want string) {
	g.t.Helper()
	status, message := g.pod(namespace, "try", image)
	if status == http.StatusCreated {
		g.remove(namespace, "try")
	}
	if (status == http.StatusCreated) != (want == "") || !strings.Contains(message, want) {
		g.t.Errorf("%s: %d %s, want %q", what, status, message, want)
	}
}

// TestCluster: an API server of Kubernetes accepts the objects of the chart, and creates only pods whose images no rule
// refuses.
func TestCluster(t *testing.T) {
	g := newGuarded(t)
	g.tries("without a rule", "shop", g.image, "")
	rule := g.holdfast("findings", "rules", "create", "--parent", "dev", "--unsigned", "--mode", "enforce", "-o", "id")
	const reason = "pulls of this image are refused: there are no signers"
	g.tries("with a rule", "shop", g.image, reason)
	g.tries("in a namespace with warnings", "lab", g.image, "")
	g.tries("in a namespace without a label", "free", g.image, "")
	g.tries("an image of another registry", "shop", "docker.io/library/busybox", "")
	status, text, err := g.send(http.MethodPost, strings.Replace(collections["Deployment"], "NAMESPACE", "shop", 1), "",
		fmt.Sprintf(`{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {
			"selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}},
			"spec": {"containers": [{"name": "web", "image": %q}]}}}}`, g.image))
	if err != nil || status != http.StatusForbidden || !strings.Contains(string(text), reason) {
		t.Errorf("a deployment: %d %s %v", status, text, err)
	}
	g.debugs(reason)
	g.endures(rule, reason)
	g.loads(rule)
}

// debugs adds ephemeral containers to a running pod.
func (g *guarded) debugs(reason string) {
	g.t.Helper()
	if status, message := g.pod("shop", "running", "docker.io/library/busybox"); status != http.StatusCreated {
		g.t.Fatalf("%d %s", status, message)
	}
	for image, want := range map[string]int{g.image: http.StatusForbidden, "docker.io/library/alpine": http.StatusOK} {
		name := strings.TrimLeft(image[len(image)-2:], ":") // each container has its own
		status, text, err := g.send(http.MethodPatch, "/api/v1/namespaces/shop/pods/running/ephemeralcontainers",
			"application/strategic-merge-patch+json",
			fmt.Sprintf(`{"spec": {"ephemeralContainers": [{"name": "debug-%s", "image": %q}]}}`, name, image))
		if err != nil || status != want || status == http.StatusForbidden && !strings.Contains(string(text), reason) {
			g.t.Errorf("an ephemeral container with %s: %d %s %v", image, status, text, err)
		}
	}
	g.remove("shop", "running")
}

// endures stops the program, and then Holdfast.
func (g *guarded) endures(rule, reason string) {
	g.t.Helper()
	_ = g.webhook.Process.Kill()
	_ = g.webhook.Wait()
	g.tries("without the program", "shop", g.image, "failed calling webhook")
	g.tries("without the program, with warnings", "lab", g.image, "")
	g.startWebhook()
	g.tries("with the program again", "shop", g.image, reason)
	g.holdfast("findings", "rules", "update", rule, "--mode", "dry-run")
	g.tries("after the rule was changed", "shop", g.image, "")
	address := g.server.address
	g.server.stop()
	g.tries("without Holdfast, with a kept decision", "shop", g.image, "")
	g.tries("without Holdfast", "shop", g.dev.RegistryHost+"/dev/other:v1", "Holdfast could not be asked about it")
	g.startServer(address)
	g.holdfast("findings", "rules", "update", rule, "--mode", "enforce")
	g.tries("with Holdfast again", "shop", g.image, reason)
}

// loads creates and deletes pods while the rule changes. A pod that is created after the answer to a change gets the
// decision of the changed rule.
func (g *guarded) loads(rule string) {
	g.t.Helper()
	modes := []string{"dry-run", "enforce"}
	var turn sync.RWMutex // held for writing while the rule changes
	current := 1
	next := make(chan int)
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			for i := range next {
				name := fmt.Sprintf("pod-%d-%d", worker, i)
				turn.RLock()
				status, message := g.pod("shop", name, g.image)
				if (status == http.StatusCreated) != (modes[current] == "dry-run") {
					g.t.Errorf("%s with the mode %s: %d %s", name, modes[current], status, message)
				}
				turn.RUnlock()
				if status == http.StatusCreated {
					g.remove("shop", name)
				}
			}
		})
	}
	for i := range *pods {
		if i%25 == 0 {
			turn.Lock()
			current = 1 - current
			g.holdfast("findings", "rules", "update", rule, "--mode", modes[current])
			turn.Unlock()
		}
		next <- i
	}
	close(next)
	all.Wait()
}

// TestClusterLatency logs how long the creation of a pod takes with and without the webhook.
func TestClusterLatency(t *testing.T) {
	if os.Getenv("HOLDFAST_TEST_LATENCY") == "" {
		t.Skip("HOLDFAST_TEST_LATENCY is not set")
	}
	g := newGuarded(t)
	for _, namespace := range []string{"free", "shop"} {
		var times []time.Duration
		for i := range *pods {
			begin := time.Now()
			if status, message := g.pod(namespace, fmt.Sprint("pod-", i), g.image); status != http.StatusCreated {
				t.Fatalf("%d %s", status, message)
			}
			times = append(times, time.Since(begin))
		}
		slices.Sort(times)
		t.Logf("%s: %d pods, median %v, p99 %v", namespace, len(times), times[len(times)/2], times[len(times)*99/100])
	}
}
