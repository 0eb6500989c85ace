package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
)

// KubernetesTokenFile is where a pod's token for the issuer is to be projected
// to.
const KubernetesTokenFile = "/var/run/secrets/holdfast/token"

const maxPlatformAnswer = 1 << 20

// ErrNoPlatform is the error of Platform where no platform is known.
var ErrNoPlatform = errors.New("there is no token that proves an identity")

// Platform is the proof of the platform this program runs on: GitLab CI (the
// variable HOLDFAST_ID_TOKEN), GitHub Actions, Buildkite, a pod that has a token at
// KubernetesTokenFile, or AWS (AWS_ACCESS_KEY_ID and its kin). The first that is
// there counts.
func Platform(ctx context.Context, issuer, identity string) (string, error) {
	return platformToken(ctx, platforms(KubernetesTokenFile), os.Getenv, want{issuer, identity})
}

func platformToken(ctx context.Context, all []platform, getenv func(string) string, w want) (string, error) {
	for _, p := range all {
		if !p.here(getenv) {
			continue
		}
		text, err := p.token(ctx, getenv, w)
		if err != nil {
			return "", fmt.Errorf("ask %s for a token: %w", p.name, err)
		}
		if !IsToken(text) {
			return "", fmt.Errorf("ask %s for a token: the answer holds none", p.name)
		}
		return text, nil
	}
	return "", ErrNoPlatform
}

// A platform runs workloads, and gives them tokens that say who they are.
type platform struct {
	name  string
	here  func(getenv func(string) string) bool
	token func(ctx context.Context, getenv func(string) string, w want) (string, error)
}

// A want is what a workload's token is for: it is shown to the audience, to
// assume the identity.
type want struct{ audience, identity string }

// platforms are those whose tokens are found without being told. The first that
// is there counts: a pipeline's token says more than that of the pod it runs in.
func platforms(kubernetesFile string) []platform {
	return []platform{
		{"GitLab CI", func(getenv func(string) string) bool { return getenv("HOLDFAST_ID_TOKEN") != "" }, gitlabToken},
		{"GitHub Actions", func(getenv func(string) string) bool { return getenv("ACTIONS_ID_TOKEN_REQUEST_URL") != "" },
			githubToken},
		{"Buildkite", func(getenv func(string) string) bool { return getenv("BUILDKITE_JOB_ID") != "" }, buildkiteToken},
		{"Kubernetes", func(func(string) string) bool { _, err := os.Stat(kubernetesFile); return err == nil },
			podToken(kubernetesFile)},
		{"AWS", func(getenv func(string) string) bool { return getenv("AWS_ACCESS_KEY_ID") != "" }, awsProof},
	}
}

// podToken reads what the cluster writes, and writes anew before it expires.
func podToken(file string) func(context.Context, func(string) string, want) (string, error) {
	return func(context.Context, func(string) string, want) (string, error) { return readToken(file) }
}

func gitlabToken(_ context.Context, getenv func(string) string, _ want) (string, error) {
	return getenv("HOLDFAST_ID_TOKEN"), nil
}

// githubToken asks the runner. Neither the address nor an answer is put into an
// error: there are secrets in both.
func githubToken(ctx context.Context, getenv func(string) string, w want) (string, error) {
	u, err := url.Parse(getenv("ACTIONS_ID_TOKEN_REQUEST_URL"))
	if err != nil || (u.Scheme != "https" && (u.Scheme != "http" || !isLoopback(u.Hostname()))) {
		return "", errors.New("ACTIONS_ID_TOKEN_REQUEST_URL is not an https address")
	}
	query := u.Query()
	query.Set("audience", w.audience)
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return "", errors.New("ACTIONS_ID_TOKEN_REQUEST_URL is not an address")
	}
	req.Header.Set("Authorization", "Bearer "+getenv("ACTIONS_ID_TOKEN_REQUEST_TOKEN"))
	var answer struct{ Value string }
	err = askJSON(req, &answer)
	return answer.Value, err
}

// askJSON sends a request and reads the JSON it is answered with. An error tells
// nothing of what was sent or received.
func askJSON(req *http.Request, answer any) error {
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if outer, ok := errors.AsType[*url.Error](err); ok {
		return outer.Err // without the address
	}
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // what was read is all there is to know
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("it answers %s", resp.Status)
	}
	if json.NewDecoder(io.LimitReader(resp.Body, maxPlatformAnswer)).Decode(answer) != nil {
		return errors.New("its answer is not JSON")
	}
	return nil
}

// buildkiteToken has the agent ask.
func buildkiteToken(ctx context.Context, _ func(string) string, w want) (string, error) {
	cmd := exec.CommandContext(ctx, "buildkite-agent", "oidc", "request-token", "--audience", w.audience)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		line, _, _ := strings.Cut(strings.TrimSpace(said.String()), "\n")
		return "", fmt.Errorf("buildkite-agent: %s", cmp.Or(line, err.Error()))
	}
	return strings.TrimSpace(string(out)), nil
}
