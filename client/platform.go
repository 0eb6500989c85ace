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

// KubernetesTokenFile is the file into which a pod projects its token for the issuer.
const KubernetesTokenFile = "/var/run/secrets/holdfast/token"

const maxPlatformAnswer = 1 << 20

// ErrNoPlatform means that Platform found no known platform.
var ErrNoPlatform = errors.New("there is no token that proves an identity")

// Platform is the Proof of the platform on which this program runs: GitLab CI (the
// variable HOLDFAST_ID_TOKEN), GitHub Actions, Buildkite, a pod with a token at
// KubernetesTokenFile, or AWS (AWS_ACCESS_KEY_ID and related variables), in this order.
func Platform(ctx context.Context, issuer, identity string) (string, error) {
	return platformToken(ctx, platforms(KubernetesTokenFile), os.Getenv, purpose{issuer, identity})
}

func platformToken(ctx context.Context, candidates []platform, getenv func(string) string, p purpose) (string, error) {
	for _, each := range candidates {
		if !each.present(getenv) {
			continue
		}
		text, err := each.token(ctx, getenv, p)
		if err != nil {
			return "", fmt.Errorf("ask %s for a token: %w", each.name, err)
		}
		if !IsToken(text) {
			return "", fmt.Errorf("ask %s for a token: the answer is not a token", each.name)
		}
		return text, nil
	}
	return "", ErrNoPlatform
}

// A platform gives workloads tokens that prove their identity.
type platform struct {
	name string
	// present reports whether the program runs on the platform.
	present func(getenv func(string) string) bool
	token   func(ctx context.Context, getenv func(string) string, p purpose) (string, error)
}

// A purpose is the audience of a workload's token, and the identity to assume with it.
type purpose struct{ audience, identity string }

// platforms returns the known platforms. The first platform that is present is used,
// because the token of a pipeline says more than the token of the pod that runs the
// pipeline.
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

// podToken returns a function that reads the file on each call, because the cluster
// renews the token before it expires.
func podToken(file string) func(context.Context, func(string) string, purpose) (string, error) {
	return func(context.Context, func(string) string, purpose) (string, error) { return readToken(file) }
}

func gitlabToken(_ context.Context, getenv func(string) string, _ purpose) (string, error) {
	return getenv("HOLDFAST_ID_TOKEN"), nil
}

// githubToken requests a token from the runner. Errors quote neither the address nor the
// answer, because both contain secrets.
func githubToken(ctx context.Context, getenv func(string) string, p purpose) (string, error) {
	u, err := url.Parse(getenv("ACTIONS_ID_TOKEN_REQUEST_URL"))
	if err != nil || (u.Scheme != "https" && (u.Scheme != "http" || !isLoopback(u.Hostname()))) {
		return "", errors.New("ACTIONS_ID_TOKEN_REQUEST_URL is not an https address")
	}
	query := u.Query()
	query.Set("audience", p.audience)
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

// askJSON sends a request and decodes the JSON answer. Errors quote neither the request
// nor the answer.
func askJSON(req *http.Request, answer any) error {
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if outer, ok := errors.AsType[*url.Error](err); ok {
		return outer.Err // outer itself would quote the address
	}
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // an error of Close does not matter, because the body was read
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("it answers %s", resp.Status)
	}
	if json.NewDecoder(io.LimitReader(resp.Body, maxPlatformAnswer)).Decode(answer) != nil {
		return errors.New("its answer is not JSON")
	}
	return nil
}

// buildkiteToken runs the Buildkite agent to get a token.
func buildkiteToken(ctx context.Context, _ func(string) string, p purpose) (string, error) {
	cmd := exec.CommandContext(ctx, "buildkite-agent", "oidc", "request-token", "--audience", p.audience)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		line, _, _ := strings.Cut(strings.TrimSpace(said.String()), "\n")
		return "", fmt.Errorf("buildkite-agent: %s", cmp.Or(line, err.Error()))
	}
	return strings.TrimSpace(string(out)), nil
}
