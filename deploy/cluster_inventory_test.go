package deploy_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
)

// A watched is a cluster whose pods holdfast-kube reports.
type watched struct {
	*guarded
	args    []string
	program *exec.Cmd
}

// newWatched starts the program with the arguments of its pod, a token for Holdfast and a token for the API server.
func newWatched(t *testing.T) *watched {
	t.Helper()
	g := &guarded{cluster: newCluster(t), address: "127.0.0.1:" + freePort(t), data: t.TempDir()}
	g.startServer("127.0.0.1:0")
	keys, account := filepath.Join(t.TempDir(), "keys.json"), "holdfast-holdfast-kube-inventory"
	write(t, keys, string(g.must(http.MethodGet, "/openid/v1/jwks", "")))
	g.holdfast("iam", "roles", "create", "inventory", "--parent", "dev", "--capability", "registry.deployments.create")
	identity := g.holdfast("iam", "identities", "create", "kubernetes", "watcher", "--issuer", clusterIssuer,
		"--issuer-keys-file", keys, "--namespace", "holdfast", "--service-account", account, "--parent", "dev",
		"--role", "inventory", "-o", "id")
	g.namespace("holdfast", "")
	g.namespace("shop", "")
	values := map[string]any{
		"server": g.dev.BaseURL, "identity": identity, "mode": "off",
		"tls":       map[string]any{"existingSecret": "tls", "caBundle": "to be replaced"},
		"inventory": map[string]any{"enabled": true, "group": g.dev.OrganizationUID, "place": "test"},
	}
	documents, err := renderChart(t, kubeChart, values)
	if err != nil {
		t.Fatal(err)
	}
	_, _, bundle := g.certificate()
	for _, document := range documents {
		g.create("holdfast", string(document), func(object map[string]any) { g.point(object, bundle) })
	}
	own, theirs := filepath.Join(t.TempDir(), "token"), filepath.Join(t.TempDir(), "token")
	write(t, own, g.token("holdfast", account, g.dev.BaseURL))
	write(t, theirs, g.token("holdfast", account, clusterIssuer))
	ca := filepath.Join(t.TempDir(), "ca.crt")
	write(t, ca, read(t, filepath.Join(g.certificates, "apiserver.crt")))
	w := &watched{guarded: g}
	for _, d := range objectsOf[apps.Deployment](kubeObjects(t, values)) {
		if d.Name == account {
			w.args = append(w.args, d.Spec.Template.Spec.Containers[0].Args...)
		}
	}
	w.args = append(w.args, "--metrics=127.0.0.1:0", "--token-file="+own, "--cluster="+g.url,
		"--cluster-token-file="+theirs, "--cluster-ca="+ca)
	w.program = background(t, program(t, "holdfast-kube"), w.args...)
	return w
}

// restart kills the program and starts it again.
func (w *watched) restart() {
	w.t.Helper()
	_ = w.program.Process.Kill()
	_ = w.program.Wait()
	w.program = background(w.t, program(w.t, "holdfast-kube"), w.args...)
}

// runs creates a pod and says, as its node would, that it runs an image with a digest.
func (w *watched) runs(name, digest string) {
	w.t.Helper()
	if status, message := w.pod("shop", name, "registry.example.com/app:1"); status != http.StatusCreated {
		w.t.Fatalf("%d %s", status, message)
	}
	w.must(http.MethodPut, "/api/v1/namespaces/shop/pods/"+name+"/status", fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod",
		"metadata": {"name": %q}, "status": {"phase": "Running", "containerStatuses": [{"name": "web", "ready": true,
		"restartCount": 0, "image": "registry.example.com/app:1", "imageID": "registry.example.com/app@%s",
		"state": {"running": {"startedAt": "2026-11-01T08:00:00Z"}}}]}}`, name, digest))
}

// awaits waits until the inventory has these images, as "workload digest".
func (w *watched) awaits(what string, want ...string) {
	w.t.Helper()
	var got []string
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		var answer struct {
			Images []struct {
				Entry struct{ Workload, Digest string }
			}
		}
		text := w.holdfast("api", "GET", "/findings/v1/inventory?place=test")
		if err := json.Unmarshal([]byte(text), &answer); err != nil {
			w.t.Fatalf("%s: %v", text, err)
		}
		got = nil
		for _, i := range answer.Images {
			got = append(got, i.Entry.Workload+" "+i.Entry.Digest)
		}
		if strings.Join(got, "\n") == strings.Join(want, "\n") {
			return
		}
	}
	w.t.Errorf("%s: %v, want %v", what, got, want)
}

// TestClusterInventory: Holdfast learns which images run, whatever is stopped and started.
func TestClusterInventory(t *testing.T) {
	w := newWatched(t)
	digest := func(letter string) string { return "sha256:" + strings.Repeat(letter, 64) }
	w.awaits("an empty cluster")
	w.runs("one", digest("a"))
	w.runs("two", digest("b"))
	w.awaits("after two pods", "Pod/one "+digest("a"), "Pod/two "+digest("b"))
	w.remove("shop", "one")
	w.awaits("after a pod was deleted", "Pod/two "+digest("b"))
	_ = w.program.Process.Kill()
	_ = w.program.Wait()
	w.remove("shop", "two")
	w.runs("three", digest("c"))
	w.restart()
	w.awaits("after a restart", "Pod/three "+digest("c"))
	address := w.server.address
	w.server.stop()
	w.runs("four", digest("d"))
	w.startServer(address)
	w.awaits("after Holdfast was away", "Pod/four "+digest("d"), "Pod/three "+digest("c"))
}

// TestClusterInventorySize logs how much memory the program needs for many pods, and how soon a change is known.
func TestClusterInventorySize(t *testing.T) {
	if os.Getenv("HOLDFAST_TEST_LATENCY") == "" {
		t.Skip("HOLDFAST_TEST_LATENCY is not set")
	}
	w := newWatched(t)
	var all sync.WaitGroup
	next := make(chan int)
	for range 4 {
		all.Go(func() {
			for i := range next {
				w.runs(fmt.Sprint("pod-", i), "sha256:"+strings.Repeat("a", 64))
			}
		})
	}
	for i := range *pods {
		next <- i
	}
	close(next)
	all.Wait()
	w.counts(*pods)
	w.restart() // the list of all pods needs the most memory
	w.remove("shop", "pod-0")
	begin := time.Now()
	w.counts(*pods - 1)
	t.Logf("%d pods: known %v after a restart and a change; %s", *pods, time.Since(begin), memoryOf(t, w.program))
}

// counts waits until the inventory has n entries.
func (w *watched) counts(n int) {
	w.t.Helper()
	var got int
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		var answer struct{ Places []struct{ Entries int } }
		text := w.holdfast("api", "GET", "/findings/v1/inventoryPlaces")
		if err := json.Unmarshal([]byte(text), &answer); err != nil {
			w.t.Fatalf("%s: %v", text, err)
		}
		if len(answer.Places) == 1 {
			if got = answer.Places[0].Entries; got == n {
				return
			}
		}
	}
	w.t.Errorf("%d entries, want %d", got, n)
}

// memoryOf returns the largest amount of memory that a process has used.
func memoryOf(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	for line := range strings.Lines(read(t, fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))) {
		if strings.HasPrefix(line, "VmHWM:") {
			return strings.Join(strings.Fields(line), " ")
		}
	}
	return ""
}
