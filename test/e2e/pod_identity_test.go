package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/testkit/testprogram"
)

// A pod has a token of its cluster, and pulls the image dev/app:v1.
type pod struct {
	*world
	cluster  *fakeIssuer
	identity string // may pull dev/app
	binding  string
}

const podSubject = "system:serviceaccount:shop:web"

// newPod pushes the image and creates the identity of the pod. The identity trusts a pattern of service accounts.
func newPod(t *testing.T, w *world) *pod {
	t.Helper()
	p := &pod{world: w, cluster: newFakeIssuer(t, w)}
	w.pushImage(t, "dev/app", "v1", "amd64", "layer")
	p.identity = w.workload(t, p.cluster.url, func(m *iampb.Identity_ClaimMatch) {
		m.Sub = &iampb.Identity_ClaimMatch_SubjectPattern{SubjectPattern: "system:serviceaccount:shop:.*"}
	})
	p.binding = w.bind(t, string(w.Organization), p.identity, string(resource.ManagedRoleUID("registry.pull")))
	return p
}

// token returns a token of the pod with changed claims.
func (p *pod) token(change ...string) string {
	claims := map[string]any{"sub": podSubject}
	for i := 0; i+1 < len(change); i += 2 {
		claims[change[i]] = change[i+1]
	}
	return p.cluster.token(claims)
}

// logIn requests a token of the registry for a scope.
func (p *pod) logIn(t *testing.T, user, password, scope string) (bearer string, got reply) {
	t.Helper()
	query := url.Values{"scope": {scope}, "offline_token": {"true"}}.Encode()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.BaseURL+"/v2/token?"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.SetBasicAuth(user, password)
	got = p.roundTrip(t, r)
	var answer struct {
		Token   string
		Refresh string `json:"refresh_token"`
	}
	_ = json.Unmarshal([]byte(got.body), &answer)
	if answer.Refresh != "" {
		t.Errorf("a login with the token of another issuer gives a refresh token: %s", got.body)
	}
	return answer.Token, got
}

const pullApp = "repository:dev/app:pull"

// TestPodLogin: a pod logs in to the registry with the token of its cluster. It need not name its identity if one
// identity of the organization trusts the token.
func TestPodLogin(t *testing.T) {
	t.Parallel()
	storyWorld(t, func(t *testing.T, w *world) {
		p := newPod(t, w)
		for _, user := range []string{"", "_token", p.identity} {
			bearer, got := p.logIn(t, user, p.token(), pullApp)
			if got := w.oci(t, bearer, "GET", "/v2/dev/app/manifests/v1", ""); got.status != http.StatusOK {
				t.Errorf("the user %q pulls: %d %s", user, got.status, got.body)
			}
			if said := said(t, bearer); said["sub"] != p.identity {
				t.Errorf("the user %q gets a token for %v: %s", user, said["sub"], got.body)
			}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.BaseURL+"/v2/dev/app/manifests/v1", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.SetBasicAuth(user, p.token())
			if got := w.roundTrip(t, r); got.status != http.StatusOK {
				t.Errorf("the user %q pulls without a token of the registry: %d %s", user, got.status, got.body)
			}
		}
		bearer, _ := p.logIn(t, "", p.token(), pullApp)
		w.delete(t, "/iam/v2beta1/roleBindings/"+p.binding)
		if got := w.oci(t, bearer, "GET", "/v2/dev/app/manifests/v1", ""); got.status != http.StatusForbidden {
			t.Errorf("without the role, the token still pulls: %d", got.status)
		}
	})
}

// TestAttackPodLogin: a token that no identity of the organization trusts gives the same answer as an organization that
// does not exist. Identities of other organizations are not considered, and if two identities trust a token, none is
// chosen.
func TestAttackPodLogin(t *testing.T) {
	t.Parallel()
	storyWorld(t, func(t *testing.T, w *world) {
		p := newPod(t, w)
		requestID := regexp.MustCompile(`\(request [^)]*\)`)
		refusal := func(user, password, scope string) string {
			t.Helper()
			bearer, got := p.logIn(t, user, password, scope)
			if bearer != "" || got.status != http.StatusUnauthorized {
				t.Errorf("%s as %q: %d %s", scope, user, got.status, got.body)
			}
			return requestID.ReplaceAllString(got.body, "")
		}
		want := refusal("", p.token(), "repository:nobody/app:pull")
		other := newFakeIssuer(t, w)
		for name, password := range map[string]string{
			"another subject":  p.token("sub", "system:serviceaccount:bank:web"),
			"another audience": p.token("aud", "https://other.test"),
			"another issuer":   other.token(map[string]any{"sub": podSubject}),
			"a wrong key":      jws(ecHeader, p.cluster.claims(map[string]any{"sub": podSubject}), withRSA),
			"an expired token": p.cluster.token(map[string]any{"sub": podSubject, "exp": 1_700_000_000}),
		} {
			if got := refusal("", password, pullApp); got != want {
				t.Errorf("%s: %s\nan organization that does not exist: %s", name, got, want)
			}
		}
		for _, scope := range []string{"", "registry:catalog:*", "repository:", "repository:dev"} {
			refusal("", p.token(), scope)
		}
		got := refusal(p.identity, p.token("aud", "https://other.test"), pullApp)
		if !strings.Contains(got, `invalid \"aud\"`) {
			t.Errorf("with the identity as the user, the answer does not say which claim is wrong: %s", got)
		}
		rivals := must[*iampb.Group](t, w.overGRPC, w.Token, &iampb.CreateGroupRequest{Group: &iampb.Group{Name: "rivals"}})
		make := func(parent string) string {
			return must[*iampb.Identity](t, w.overGRPC, w.Token, &iampb.CreateIdentityRequest{
				Parent: parent, Identity: &iampb.Identity{Name: "same", Relationship: &iampb.Identity_ClaimMatch_{
					ClaimMatch: &iampb.Identity_ClaimMatch{
						Iss: &iampb.Identity_ClaimMatch_Issuer{Issuer: p.cluster.url},
						Sub: &iampb.Identity_ClaimMatch_Subject{Subject: podSubject},
					},
				}},
			}).GetUid()
		}
		make(rivals.GetUid())
		if bearer, got := p.logIn(t, "", p.token(), pullApp); said(t, bearer)["sub"] != p.identity {
			t.Errorf("an identity of another organization is considered: %s", got.body)
		}
		second := make(string(w.Organization))
		if got := refusal("", p.token(), pullApp); !strings.Contains(got, p.identity) || !strings.Contains(got, second) {
			t.Errorf("the answer does not name the two identities that trust the token: %s", got)
		}
	})
}

// kubelet runs the code with which the kubelet gets credentials for an image, with our provider.
func (p *pod) kubelet(
	t *testing.T, token, annotations string, images ...string,
) (credentials []kubeletResult, log string) {
	t.Helper()
	folder := t.TempDir()
	program := filepath.Join(folder, "holdfast-credential-provider")
	if err := os.Symlink(testprogram.CredentialProvider(t), program); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(folder, "config.yaml")
	if err := os.WriteFile(config, p.kubeletConfig(t), 0o600); err != nil {
		t.Fatal(err)
	}
	args := append([]string{config, folder, "shop", "web", annotations}, images...)
	cmd := exec.CommandContext(t.Context(), testprogram.Path(t, "kubelet-credentials"), args...)
	cmd.Env = append(os.Environ(), "TOKEN="+token)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	for dec := json.NewDecoder(&stdout); dec.More(); {
		var r kubeletResult
		if err := dec.Decode(&r); err != nil {
			t.Fatal(err)
		}
		credentials = append(credentials, r)
	}
	if strings.Contains(stderr.String()+stdout.String(), token) {
		t.Error("the token of the service account is in the output")
	}
	return credentials, stderr.String()
}

// kubeletConfig returns the configuration that the command prints for nodes. Only the options of the provider differ,
// because the name of the registry does not lead to the server.
func (p *pod) kubeletConfig(t *testing.T) []byte {
	t.Helper()
	setup := exec.CommandContext(t.Context(), testprogram.Holdfast(t), "kubernetes", "setup", "--only", "provider",
		"--api", p.BaseURL, "--registry", p.RegistryHost, "--audience", p.AuthURL)
	setup.Env = append(os.Environ(), "XDG_CONFIG_HOME="+t.TempDir())
	text, err := setup.Output()
	options := regexp.MustCompile(`args: .*`)
	if err != nil || !options.Match(text) {
		t.Fatalf("the command prints no configuration: %v\n%s", err, text)
	}
	return options.ReplaceAll(text, fmt.Appendf(nil, "args: [--server=%s, --registry=%s, --timeout=60s]", p.BaseURL,
		p.RegistryHost))
}

type kubeletResult struct {
	Image       string
	Credentials []struct{ Username, Password string }
	Audiences   []string
}

// TestKubelet: the kubelet gets credentials for a pod from our provider. They pull the image of the pod and no other
// image. Without access, the log of the kubelet has the reason.
func TestKubelet(t *testing.T) {
	t.Parallel()
	storyWorld(t, func(t *testing.T, w *world) {
		p := newPod(t, w)
		w.pushImage(t, "dev/other", "v1", "amd64", "other layer")
		image := w.RegistryHost + "/dev/app:v1"
		for _, annotations := range []string{`{}`, fmt.Sprintf(`{"holdfast.dev/identity": %q}`, p.identity)} {
			got, log := p.kubelet(t, p.token(), annotations, image, "registry.invalid/dev/app:v1")
			if len(got) != 2 || len(got[0].Credentials) != 1 || len(got[1].Credentials) != 0 ||
				got[0].Audiences[0] != w.AuthURL {
				t.Fatalf("annotations %s: %+v\n%s", annotations, got, log)
			}
			c := got[0].Credentials[0]
			for repo, want := range map[string]int{"app": http.StatusOK, "other": http.StatusUnauthorized} {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.BaseURL+"/v2/dev/"+repo+"/manifests/v1", nil)
				if err != nil {
					t.Fatal(err)
				}
				r.SetBasicAuth(c.Username, c.Password)
				if got := w.roundTrip(t, r); got.status != want {
					t.Errorf("the credentials pull %s: %d, want %d: %s", repo, got.status, want, got.body)
				}
			}
		}
		for annotations, tt := range map[string]struct{ token, reason string }{
			`{"holdfast.dev/identity": "0123456789abcdef"}`: {p.token(), "UID of an identity"},
			`{}`: {p.token("sub", "system:serviceaccount:bank:web"), "no identity of the organization trusts this token"},
			fmt.Sprintf(`{"holdfast.dev/identity": %q}`, p.identity): {p.token("aud", "https://other.test"), "aud"},
		} {
			got, log := p.kubelet(t, tt.token, annotations, image)
			if len(got) != 1 || len(got[0].Credentials) != 0 || !strings.Contains(log, tt.reason) {
				t.Errorf("%s: %+v, want the reason %q in the log:\n%s", annotations, got, tt.reason, log)
			}
		}
	})
}
