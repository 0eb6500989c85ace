package deploy_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/yaml"
)

// A pipeline is the environment of a job: a server in dev mode with an identity that
// trusts the tokens of its test issuer, a release to download, and the files that the job
// writes.
type pipeline struct {
	t        *testing.T
	server   *holdfastd
	dev      string // path of dev.json, which describes the server
	identity string
	registry string
	url      string // address of the release to download
	sha256   string
	home     string
	environ  map[string]string
}

// newPipeline creates the identity with the given arguments of `holdfast iam identities
// create`, and adds the group.
func newPipeline(t *testing.T, preset ...string) *pipeline {
	t.Helper()
	p := &pipeline{t: t, home: t.TempDir()}
	settings := local(t)
	p.server, p.dev = start(t, environ(settings), "--dev"), filepath.Join(settings["HOLDFAST_DATA_DIR"], "dev.json")
	var dev struct{ BaseURL, RegistryHost, Token, TestIssuer string }
	if err := json.Unmarshal([]byte(read(t, p.dev)), &dev); err != nil {
		t.Fatal(err)
	}
	p.registry = dev.RegistryHost
	bundle := p.serveRelease()
	p.environ = map[string]string{
		"HOME": p.home, "PATH": os.Getenv("PATH"), "RUNNER_TEMP": t.TempDir(), "CURL_CA_BUNDLE": bundle,
		"GITHUB_ENV": p.file("env"), "GITHUB_PATH": p.file("path"), "GITHUB_OUTPUT": p.file("output"),
	}
	owner := map[string]string{"HOLDFAST_API": dev.BaseURL, "HOLDFAST_TOKEN": dev.Token, "HOME": p.home}
	p.holdfast(owner, append(append([]string{"iam", "identities", "create"}, preset...),
		"--issuer", dev.TestIssuer, "--parent", "dev", "--role", "registry.pull")...)
	p.identity = p.holdfast(owner, "iam", "identities", "get", "dev/"+preset[1], "-o", "id")
	return p
}

func (p *pipeline) file(name string) string { return filepath.Join(p.home, name) }

// holdfast runs the command and returns its output.
func (p *pipeline) holdfast(variables map[string]string, args ...string) string {
	p.t.Helper()
	cmd := exec.CommandContext(p.t.Context(), program(p.t, "holdfast"), args...)
	cmd.Env = environ(variables)
	out, err := cmd.Output()
	if err != nil {
		p.t.Fatalf("holdfast %s: %v", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out))
}

// devToken returns the token that a platform would give to a job.
func (p *pipeline) devToken(args ...string) string {
	p.t.Helper()
	api := map[string]string{"HOLDFAST_API": "http://" + p.server.address, "HOME": p.home}
	return p.holdfast(api, append(append([]string{"dev", "token"}, args...), "--dev-file", p.dev)...)
}

// serveRelease serves an archive like the one of a release over https, and returns the
// path of its certificate.
func (p *pipeline) serveRelease() string {
	p.t.Helper()
	var archive bytes.Buffer
	zip := gzip.NewWriter(&archive)
	files := tar.NewWriter(zip)
	content := read(p.t, program(p.t, "holdfast"))
	head := &tar.Header{Name: "holdfast_1.0.0_linux_amd64/holdfast", Mode: 0o755, Size: int64(len(content))}
	if err := files.WriteHeader(head); err != nil {
		p.t.Fatal(err)
	}
	if _, err := io.WriteString(files, content); err != nil {
		p.t.Fatal(err)
	}
	if err := files.Close(); err != nil {
		p.t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		p.t.Fatal(err)
	}
	sum := sha256.Sum256(archive.Bytes())
	p.sha256 = hex.EncodeToString(sum[:])
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(archive.Bytes())
	}))
	p.t.Cleanup(s.Close)
	p.url = s.URL + "/holdfast_1.0.0_linux_amd64.tar.gz"
	bundle := p.file("ca.pem")
	block := &pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}
	if err := os.WriteFile(bundle, pem.EncodeToMemory(block), 0o600); err != nil {
		p.t.Fatal(err)
	}
	return bundle
}

// inputs returns the inputs that the author of a pipeline sets.
func (p *pipeline) inputs() map[string]string {
	return map[string]string{
		"api": "http://" + p.server.address, "identity": p.identity, "url": p.url, "sha256": p.sha256,
	}
}

// fill replaces the inputs in a text. how is the syntax of an input, in which NAME stands
// for its name.
func fill(t *testing.T, text, how string, inputs map[string]string) string {
	t.Helper()
	mark := regexp.MustCompile(strings.Replace(regexp.QuoteMeta(how), "NAME", `(\w+)`, 1))
	return mark.ReplaceAllStringFunc(text, func(found string) string {
		value, ok := inputs[mark.FindStringSubmatch(found)[1]]
		if !ok {
			t.Errorf("%s is no input", found)
		}
		return value
	})
}

// checkSignedIn checks two things with the variables of a later step: docker gets a token
// that the registry accepts, and no secret was stored.
func (p *pipeline) checkSignedIn(variables map[string]string) {
	p.t.Helper()
	var config, want any
	if err := json.Unmarshal([]byte(read(p.t, p.file(".docker/config.json"))), &config); err != nil {
		p.t.Fatal(err)
	}
	want = map[string]any{"credHelpers": map[string]any{p.registry: "holdfast"}}
	if got, _ := json.Marshal(config); string(got) != string(must(json.Marshal(want))) {
		p.t.Errorf("~/.docker/config.json = %s, want %v", got, want)
	}
	cmd := exec.CommandContext(p.t.Context(), "sh", "-c", "docker-credential-holdfast get")
	cmd.Env, cmd.Stdin = environ(variables), strings.NewReader(p.registry)
	out, err := cmd.Output()
	if err != nil {
		p.t.Fatalf("docker-credential-holdfast: %v\n%s", err, out)
	}
	var login struct{ Username, Secret string }
	if err := json.Unmarshal(out, &login); err != nil {
		p.t.Fatal(err)
	}
	r := must(http.NewRequestWithContext(p.t.Context(), http.MethodGet, "http://"+p.server.address+"/v2/", http.NoBody))
	r.Header.Set("Authorization", "Bearer "+login.Secret)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || login.Username != "_token" {
		p.t.Errorf("the registry answers %s to %s", resp.Status, login.Username)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// An action is a composite action of GitHub.
type action struct {
	Name, Description, Author string
	Inputs                    map[string]struct {
		Description string
		Required    bool
	}
	Outputs map[string]struct{ Description, Value string }
	Runs    struct {
		Using string
		Steps []struct {
			Name, ID, Shell, Run string
			Env                  map[string]string
		}
	}
}

// TestGitHubAction runs the steps of the action as a runner does.
func TestGitHubAction(t *testing.T) {
	var a action
	if err := yaml.UnmarshalStrict([]byte(read(t, "ci/github/action.yml")), &a); err != nil {
		t.Fatal(err)
	}
	p := newPipeline(t, "github", "web", "--repo", "acme/web", "--branch", "main")
	ref := "main"
	runner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		audience := r.URL.Query().Get("audience")
		if r.Header.Get("Authorization") != "Bearer of-the-run" || audience != "http://"+p.server.address {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		token := p.devToken("github", "--repo", "acme/web", "--ref", ref)
		_ = json.NewEncoder(w).Encode(map[string]string{"value": token})
	}))
	defer runner.Close()

	if out, err := p.runAction(a, p.inputs()); err == nil || !strings.Contains(out, "id-token: write") {
		t.Errorf("without the permission: %v\n%s", err, out)
	}
	p.environ["ACTIONS_ID_TOKEN_REQUEST_URL"] = runner.URL + "/?api-version=2"
	p.environ["ACTIONS_ID_TOKEN_REQUEST_TOKEN"] = "of-the-run"
	tampered := p.inputs()
	tampered["sha256"] = strings.Repeat("0", 64)
	if out, err := p.runAction(a, tampered); err == nil || !strings.Contains(out, "does not have the SHA-256") {
		t.Errorf("with another checksum: %v\n%s", err, out)
	}
	ref = "other"
	if out, err := p.runAction(a, p.inputs()); err == nil || !strings.Contains(out, "Permission denied") {
		t.Errorf("on another branch: %v\n%s", err, out)
	}
	ref = "main"
	if out, err := p.runAction(a, p.inputs()); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if got := read(t, p.file("output")); got != "registry="+p.registry+"\n" {
		t.Errorf("output %q", got)
	}
	p.checkSignedIn(p.later())
}

// runAction runs the steps of an action until one fails.
func (p *pipeline) runAction(a action, inputs map[string]string) (out string, err error) {
	p.t.Helper()
	for _, step := range a.Runs.Steps {
		if step.Shell != "bash" || strings.Contains(step.Run, "${{") {
			p.t.Fatalf("%s: an input in a script could be a command of others", step.Name)
		}
		own := map[string]string{}
		for name, value := range step.Env {
			own[name] = fill(p.t, value, "${{ inputs.NAME }}", inputs)
		}
		script := p.file("step.sh")
		if err := os.WriteFile(script, []byte(step.Run), 0o600); err != nil {
			p.t.Fatal(err)
		}
		cmd := exec.CommandContext(p.t.Context(), "bash", "--noprofile", "--norc", "-eo", "pipefail", script)
		cmd.Env = environ(p.later(), own)
		text, err := cmd.CombinedOutput()
		out += string(text)
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

// later returns the variables of a step that follows the steps which wrote GITHUB_ENV and
// GITHUB_PATH.
func (p *pipeline) later() map[string]string {
	all := maps.Clone(p.environ)
	for _, name := range []string{"env", "path"} {
		text, err := os.ReadFile(p.file(name))
		if err != nil && !os.IsNotExist(err) {
			p.t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSuffix(line, "\n")
			if name == "path" {
				all["PATH"] = line + ":" + all["PATH"]
			} else if key, value, ok := strings.Cut(line, "="); ok {
				all[key] = value
			}
		}
	}
	return all
}

// A component is a CI component of GitLab: its head and its jobs.
type component struct {
	Spec struct {
		Inputs map[string]struct{ Description string }
	}
}

type job struct {
	IDTokens     map[string]struct{ Aud string } `json:"id_tokens"`
	Variables    map[string]string
	BeforeScript []string `json:"before_script"`
}

// TestGitLabComponent runs the script of the job in one shell, as a runner does, and then
// prints the variables of the shell.
func TestGitLabComponent(t *testing.T) {
	p := newPipeline(t, "gitlab", "shop", "--project", "acme/shop", "--branch", "main")
	documents := split(t, read(t, "ci/gitlab/template.yml"))
	var head component
	if err := yaml.UnmarshalStrict(documents[0], &head); err != nil {
		t.Fatal(err)
	}
	inputs := p.inputs()
	if len(head.Spec.Inputs) != len(inputs) {
		t.Errorf("inputs: %v", head.Spec.Inputs)
	}
	var jobs map[string]job
	filled := fill(t, string(documents[1]), "$[[ inputs.NAME ]]", inputs)
	if err := yaml.UnmarshalStrict([]byte(filled), &jobs); err != nil {
		t.Fatal(err)
	}
	j := jobs[".holdfast"]
	if aud := j.IDTokens["HOLDFAST_ID_TOKEN"].Aud; aud != "http://"+p.server.address {
		t.Fatalf("aud = %q", aud)
	}
	token := map[string]string{"HOLDFAST_ID_TOKEN": p.devToken("gitlab", "--project", "acme/shop", "--branch", "main")}
	script := "set -eo pipefail\n" + strings.Join(j.BeforeScript, "\n") + "\necho \"PATH=$PATH\" >\"$HOME/env\"\n"
	run := func(change map[string]string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
		cmd.Env = environ(p.environ, j.Variables, token, change)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := run(map[string]string{"HOLDFAST_RELEASE_SHA256": strings.Repeat("0", 64)}); err == nil {
		t.Errorf("with another checksum: %s", out)
	}
	other := p.devToken("gitlab", "--project", "acme/other", "--branch", "main")
	if out, err := run(map[string]string{"HOLDFAST_ID_TOKEN": other}); err == nil {
		t.Errorf("as another project: %s", out)
	}
	if out, err := run(nil); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	variables := p.later()
	maps.Copy(variables, j.Variables)
	maps.Copy(variables, token)
	p.checkSignedIn(variables)
}

// TestPipelinesAreDocumented checks that the documentation for CI engineers uses the
// inputs of the action and of the template.
func TestPipelinesAreDocumented(t *testing.T) {
	var a action
	if err := yaml.UnmarshalStrict([]byte(read(t, "ci/github/action.yml")), &a); err != nil {
		t.Fatal(err)
	}
	var c component
	if err := yaml.UnmarshalStrict(split(t, read(t, "ci/gitlab/template.yml"))[0], &c); err != nil {
		t.Fatal(err)
	}
	var workflow struct {
		Jobs map[string]struct {
			Steps []struct {
				Uses string
				With map[string]string
			}
		}
	}
	var pipeline struct {
		Include []struct {
			Remote string
			Inputs map[string]string
		}
	}
	page := read(t, "../docs/workloads.md")
	readBlock(t, page, "deploy/ci/github@", &workflow)
	readBlock(t, page, "deploy/ci/gitlab/", &pipeline)
	for _, step := range workflow.Jobs["build"].Steps {
		if strings.Contains(step.Uses, "deploy/ci/github@") && !sameKeys(step.With, a.Inputs) {
			t.Errorf("the page gives the action %v, which has %v", step.With, a.Inputs)
		}
	}
	if in := pipeline.Include[0].Inputs; !sameKeys(in, c.Spec.Inputs) {
		t.Errorf("the page gives the template %v, which has %v", in, c.Spec.Inputs)
	}
}

// readBlock decodes the YAML block of a page that contains text.
func readBlock(t *testing.T, page, text string, v any) {
	t.Helper()
	for _, m := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(page, -1) {
		if strings.Contains(m[1], text) {
			if err := yaml.Unmarshal([]byte(m[1]), v); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("no block of YAML has %s", text)
}

func sameKeys[A, B any](a map[string]A, b map[string]B) bool {
	return slices.Equal(slices.Sorted(maps.Keys(a)), slices.Sorted(maps.Keys(b)))
}
