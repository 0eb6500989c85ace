package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
	"github.com/holdfast-dev/holdfast/internal/server/listen/listentest"
	"github.com/holdfast-dev/holdfast/internal/testkit/testprogram"
)

// A webhook is a running holdfast-kube, which asks a server as the identity of a cluster.
type webhook struct {
	address string
	client  *http.Client

	mu  sync.Mutex
	log bytes.Buffer
}

// startWebhook starts holdfast-kube with the token of a pod.
func startWebhook(t *testing.T, p *pod, args ...string) *webhook {
	t.Helper()
	folder := t.TempDir()
	cert, key, roots := listentest.Files(t)
	token := filepath.Join(folder, "token")
	if err := os.WriteFile(token, []byte(p.token()), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), testprogram.Kube(t), append([]string{
		"--server", p.BaseURL, "--registry", p.RegistryHost, "--identity", p.identity, "--token-file", token,
		"--tls-cert", cert, "--tls-key", key, "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0",
	}, args...)...)
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	h := &webhook{client: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}}
	lines, ready := bufio.NewScanner(stderr), make(chan string, 1)
	go func() {
		for lines.Scan() {
			var line struct {
				Address string
				TLS     bool
			}
			if _ = json.Unmarshal(lines.Bytes(), &line); line.TLS {
				ready <- line.Address
			}
			h.mu.Lock()
			h.log.Write(append(lines.Bytes(), '\n'))
			h.mu.Unlock()
		}
		close(ready)
	}()
	if h.address = <-ready; h.address == "" {
		t.Fatalf("holdfast-kube ended: %s", h.log.String())
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("holdfast-kube ended: %v", err)
		}
		if strings.Contains(h.log.String(), strings.Split(p.token(), ".")[0]+".") {
			t.Error("a token is in the log")
		}
	})
	return h
}

// A reviewed is the answer to a review.
type reviewed struct {
	UID     string
	Allowed bool
	Status  struct {
		Code    int
		Message string
	}
	Warnings         []string
	AuditAnnotations map[string]string
	Patch            []byte
}

// review sends an object to the webhook as the API server does.
func (h *webhook) review(t *testing.T, path, kind, object, before string) (r reviewed) {
	t.Helper()
	if before == "" {
		before = "null"
	}
	body := fmt.Sprintf(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"705ab4f5",
		"kind":{"kind":%q},"namespace":"shop","name":"web","operation":"CREATE","object":%s,"oldObject":%s}}`,
		kind, object, before)
	status, text := h.post(t, path, body)
	var answer struct {
		APIVersion, Kind string
		Response         reviewed
	}
	if err := json.Unmarshal(text, &answer); status != http.StatusOK || err != nil ||
		answer.Kind != "AdmissionReview" || answer.APIVersion != "admission.k8s.io/v1" || answer.Response.UID != "705ab4f5" {
		t.Fatalf("%s: %d %s", path, status, text)
	}
	return answer.Response
}

func (h *webhook) post(t *testing.T, path, body string) (status int, text []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+h.address+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := h.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, err = io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, text
}

func podOf(image string) string {
	return fmt.Sprintf(`{"spec":{"containers":[{"name":"web","image":%q}]}}`, image)
}

// TestKubeAdmission: a cluster accepts pods as long as no rule refuses their images. A refusal has the message of the
// registry, and a change of a rule or a role counts for the next pod.
func TestKubeAdmission(t *testing.T) {
	t.Parallel()
	storyWorld(t, func(t *testing.T, w *world) {
		p := newPod(t, w)
		h := startWebhook(t, p, "--other", "docker.io/=refuse", "--other", "docker.io/library/=warn")
		image := w.RegistryHost + "/dev/app:v1"
		if got := h.review(t, "/validate/enforce", "Pod", podOf(image), ""); !got.Allowed || got.Warnings != nil {
			t.Fatalf("without a rule: %+v", got)
		}
		got := h.review(t, "/mutate", "Pod", podOf(image), "")
		digest := digestOf(w.oci(t, w.RegistryToken, "GET", "/v2/dev/app/manifests/v1", "").body)
		want := `[{"op":"replace","path":"/spec/containers/0/image","value":"` + image + "@" + digest + `"}]`
		if !got.Allowed || string(got.Patch) != want {
			t.Errorf("mutation: %s, want %s", got.Patch, want)
		}
		rule := w.ruled(t, string(w.Organization), &findingspb.Rule{
			Unsigned: true, Mode: findingspb.RuleMode_RULE_MODE_ENFORCE,
		})
		h.refuses(t, p, image)
		for other, want := range map[string]struct {
			allowed bool
			warned  string
		}{
			"busybox":                      {true, "images of docker.io are not wanted here"},
			"acme/app":                     {false, ""},
			"ghcr.io/acme/app:1":           {true, ""},
			w.RegistryHost + "/dev/none:1": {true, "there is no such image, or you may not pull it"},
			w.RegistryHost + "/nobody/a:1": {true, "there is no such image, or you may not pull it"},
			w.RegistryHost + "/dev/app:" + strings.Repeat("x", 4096): {true, "this is not a reference of an image"},
		} {
			got := h.review(t, "/validate/enforce", "Pod", podOf(other), "")
			if got.Allowed != want.allowed || (len(got.Warnings) > 0) != (want.warned != "") ||
				want.warned != "" && !strings.Contains(got.Warnings[0], want.warned) && len(other) < 100 {
				t.Errorf("%.100s: %+v", other, got)
			}
		}
		w.update(t, &findingspb.UpdateRuleRequest{
			Rule: &findingspb.Rule{Uid: rule.GetUid(), Mode: findingspb.RuleMode_RULE_MODE_DRY_RUN}, UpdateMask: mask("mode"),
		})
		if got := h.review(t, "/validate/enforce", "Pod", podOf(image), ""); !got.Allowed {
			t.Errorf("after the rule was changed: %+v", got)
		}
		w.delete(t, "/iam/v2beta1/roleBindings/"+p.binding)
		if got := h.review(t, "/validate/enforce", "Pod", podOf(image), ""); len(got.Warnings) != 1 {
			t.Errorf("after the cluster lost its role: %+v", got)
		}
		w.delete(t, "/iam/v2beta1/identities/"+p.identity)
		if got := h.review(t, "/validate/enforce", "Pod", podOf(image), ""); got.Allowed ||
			!strings.Contains(got.Status.Message, "Holdfast could not be asked about it") {
			t.Errorf("after the identity of the cluster was deleted: %+v", got)
		}
		for _, body := range []string{"", "{}", `{"apiVersion":"admission.k8s.io/v1"}`, "[]", strings.Repeat(" ", 9<<20)} {
			if status, _ := h.post(t, "/validate/enforce", body); status != http.StatusBadRequest &&
				status != http.StatusRequestEntityTooLarge {
				t.Errorf("%.30q: %d", body, status)
			}
		}
	})
}

// refuses checks the answers about a refused image in every mode and from every place of an object.
func (h *webhook) refuses(t *testing.T, p *pod, image string) {
	t.Helper()
	pull := p.oci(t, p.RegistryToken, "GET", "/v2/dev/app/manifests/v1", "").body
	template := fmt.Sprintf(`{"spec":{"replicas":3,"template":%s}}`, podOf(image))
	for name, object := range map[string][2]string{
		"a pod":                  {"Pod", podOf(image)},
		"a pod in capitals":      {"Pod", podOf(strings.ToUpper(p.RegistryHost) + strings.TrimPrefix(image, p.RegistryHost))},
		"an init container":      {"Pod", strings.Replace(podOf(image), "containers", "initContainers", 1)},
		"an ephemeral container": {"Pod", strings.Replace(podOf(image), "containers", "ephemeralContainers", 1)},
		"an image volume":        {"Pod", fmt.Sprintf(`{"spec":{"volumes":[{"image":{"reference":%q}}]}}`, image)},
		"a deployment":           {"Deployment", template},
		"a cron job":             {"CronJob", fmt.Sprintf(`{"spec":{"jobTemplate":%s}}`, template)},
	} {
		got := h.review(t, "/validate/enforce", object[0], object[1], "")
		_, reason, _ := strings.Cut(got.Status.Message, ": ")
		if got.Allowed || got.Status.Code != http.StatusForbidden || reason == "" || !strings.Contains(pull, reason) {
			t.Errorf("%s: %+v, but a pull gets %s", name, got, pull)
		}
	}
	if got := h.review(t, "/validate/enforce", "Deployment", template, template); !got.Allowed {
		t.Errorf("a change that names no new image: %+v", got)
	}
	if got := h.review(t, "/validate/enforce", "Pod", podOf(image), podOf("ghcr.io/acme/app:1")); got.Allowed {
		t.Error("a changed image is accepted")
	}
	if got := h.review(t, "/validate/warn", "Pod", podOf(image), ""); !got.Allowed || len(got.Warnings) != 1 ||
		!strings.Contains(got.Warnings[0], "there are no signers") {
		t.Errorf("warn: %+v", got)
	}
	if got := h.review(t, "/validate/audit", "Pod", podOf(image), ""); !got.Allowed || len(got.Warnings) != 0 ||
		!strings.Contains(got.AuditAnnotations["refused"], "there are no signers") {
		t.Errorf("audit: %+v", got)
	}
}
