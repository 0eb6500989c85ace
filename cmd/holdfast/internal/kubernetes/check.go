package kubernetes

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
)

// A pull is a pull that check tries as a pod would make it.
type pull struct {
	app                   *noun.App
	host, repo, reference string
	identity, audience    string
	token                 string // token of the service account
	bearer                string // token of the registry, after the exchange
}

func check(a *noun.App) *cobra.Command {
	p, file, account := pull{app: a}, "", ""
	cmd := &cobra.Command{
		Use: "check IMAGE", Short: "Try to pull an image with the identity of a pod",
		Long: "Gets a token of a service account from kubectl, or reads it from a file, and does with it what a node\n" +
			"does: exchanges it for a token of the registry, and requests the manifest of the image. Your own sign-in\n" +
			"is not used. The exit code is 3 if a pod could not pull.",
		Example: "  holdfast kubernetes check registry.example.com/acme/shop/web:1.2 --service-account shop/web\n" +
			"  holdfast kubernetes check registry.example.com/acme/shop/web:1.2 --token-file token.jwt",
		Args: cobra.ExactArgs(1),
		RunE: a.Do(func(ctx context.Context, _ *cobra.Command, args []string) error {
			if err := p.prepare(ctx, args[0], file, account); err != nil {
				return err
			}
			return p.try(ctx)
		}),
	}
	f := cmd.Flags()
	// This flag hides the global flag of the same name, because this token belongs to the pod and not to the caller.
	f.StringVar(&file, "token-file", "", "`FILE` with a token of the service account; - is standard input")
	f.StringVar(&account, "service-account", "", "`NAMESPACE/NAME` of the service account, for which kubectl gets a token")
	f.StringVar(&p.identity, "identity", "", "`UID` in the annotation of the service account, if there is one")
	f.StringVar(&p.audience, "audience", "", "`AUDIENCE` of the token; by default the address of the token service")
	return cmd
}

// prepare reads the arguments, and gets the token.
func (p *pull) prepare(ctx context.Context, image, file, account string) (err error) {
	if err := p.parse(image); err != nil {
		return err
	}
	registry, err := p.app.RegistryAddress()
	if err != nil {
		return err
	}
	if p.host != registry {
		return problem.Usage("%s is not an image of %s, the registry of the settings", image, registry)
	}
	if p.audience == "" {
		if p.audience, err = p.app.Issuer(); err != nil {
			return err
		}
	}
	namespace, name, named := strings.Cut(account, "/")
	switch {
	case (file == "") == (account == ""):
		return problem.Usage("give either --service-account or --token-file")
	case file != "":
		p.token, err = p.app.ReadText(file)
		p.token = strings.TrimSpace(p.token)
	case !named || namespace == "" || name == "" || strings.HasPrefix(name, "-") || strings.HasPrefix(namespace, "-"):
		return problem.Usage("--service-account: %q is not NAMESPACE/NAME", account)
	default:
		p.token, err = kubectlToken(ctx, namespace, name, p.audience)
	}
	return err
}

// parse reads the name of an image. Without a tag, it is latest.
func (p *pull) parse(image string) error {
	name, digest, _ := strings.Cut(image, "@")
	host, repo, found := strings.Cut(name, "/")
	tag := ""
	if i := strings.LastIndexByte(repo, ':'); i > strings.LastIndexByte(repo, '/') {
		repo, tag = repo[:i], repo[i+1:]
	}
	p.host, p.repo, p.reference = host, repo, cmp.Or(digest, tag, "latest")
	if !found || host == "" || repo == "" || strings.ContainsAny(image, " ?#%\\") {
		return problem.Usage("%q is not the name of an image with the host of the registry", image)
	}
	return nil
}

// kubectlToken returns a token of a service account, from the cluster that kubectl uses.
func kubectlToken(ctx context.Context, namespace, name, audience string) (string, error) {
	cmd := exec.CommandContext(ctx, "kubectl", "create", "token", name, "--namespace="+namespace, "--audience="+audience)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", problem.New(problem.ExitError, "kubectl gives no token: %s",
			output.Printable(cmp.Or(strings.TrimSpace(errs.String()), err.Error())))
	}
	return strings.TrimSpace(out.String()), nil
}

// try tries each step, and prints what came of it. It ends at the first step that fails.
func (p *pull) try(ctx context.Context) error {
	steps := []struct {
		name string
		do   func(context.Context) (string, error)
	}{
		{"token", p.checkToken}, {"exchange", p.exchange}, {"manifest", p.manifest},
	}
	for _, s := range steps {
		detail, err := s.do(ctx)
		var failed *refusal
		if err != nil && !errors.As(err, &failed) {
			return err
		}
		if failed != nil {
			fmt.Fprintf(p.app.Out, "%s %-9s %s\n", p.app.Paint(output.Red, "no"), s.name, output.Printable(failed.why))
			return problem.New(problem.ExitNo, "a pod could not pull this image").Hint(failed.hint)
		}
		fmt.Fprintf(p.app.Out, "%s %-9s %s\n", p.app.Paint(output.Green, "ok"), s.name, output.Printable(detail))
	}
	return nil
}

// A refusal is a step that failed, with what the person can do.
type refusal struct{ why, hint string }

func (r *refusal) Error() string { return r.why }

// checkToken compares the audience and the time of the token. Only the server can verify the signature.
func (p *pull) checkToken(context.Context) (string, error) {
	var claims struct {
		Issuer   string   `json:"iss"`
		Subject  string   `json:"sub"`
		Audience audience `json:"aud"`
		Expires  int64    `json:"exp"`
	}
	segments := strings.Split(p.token, ".")
	if len(segments) != 3 {
		return "", &refusal{"this is not a token of a service account", "kubectl create token NAME prints one"}
	}
	payload, err := base64.RawURLEncoding.DecodeString(segments[1])
	if err != nil || json.Unmarshal(payload, &claims) != nil {
		return "", &refusal{"the claims of the token cannot be read", "kubectl create token NAME prints a new one"}
	}
	end := time.Unix(claims.Expires, 0)
	switch {
	case !slices.Contains(claims.Audience, p.audience):
		return "", &refusal{
			fmt.Sprintf("the token is for %s, and not for %s", strings.Join(claims.Audience, ", "), p.audience),
			"set serviceAccountTokenAudience to " + p.audience,
		}
	case time.Now().After(end):
		return "", &refusal{"the token expired at " + end.UTC().Format(time.RFC3339), "get a new token"}
	}
	return fmt.Sprintf("%s at %s, until %s", claims.Subject, claims.Issuer, end.UTC().Format(time.RFC3339)), nil
}

// An audience is the claim aud: a text or a list of texts.
type audience []string

// UnmarshalJSON reads both forms.
func (a *audience) UnmarshalJSON(text []byte) error {
	var one string
	if json.Unmarshal(text, &one) == nil {
		*a = audience{one}
		return nil
	}
	return json.Unmarshal(text, (*[]string)(a))
}

const maxAnswer = 4 << 20 // maximum size of an answer of the registry, in bytes

// exchange exchanges the token for a token that can pull from the repo of the image.
func (p *pull) exchange(ctx context.Context) (string, error) {
	scope := "repository:" + p.repo + ":pull"
	status, text, err := p.get(ctx, "/v2/token?"+url.Values{"scope": {scope}}.Encode(), func(r *http.Request) {
		r.SetBasicAuth(p.identity, p.token)
	})
	if err != nil {
		return "", err
	}
	var got struct{ Token, Scope string }
	switch {
	case status != http.StatusOK || json.Unmarshal(text, &got) != nil || got.Token == "":
		return "", &refusal{reason(status, text), "holdfast iam identities explain --token-file FILE shows each claim"}
	case !slices.Contains(strings.Fields(got.Scope), scope):
		return "", &refusal{"the identity may not pull from " + p.repo + ", or the repo does not exist",
			"holdfast iam role-bindings create --role registry.pull --identity IDENTITY --parent GROUP"}
	}
	p.bearer = got.Token
	return "the identity may pull from " + p.repo, nil
}

// manifest requests the manifest of the image, to which pull rules apply.
func (p *pull) manifest(ctx context.Context) (string, error) {
	status, text, err := p.get(ctx, "/v2/"+p.repo+"/manifests/"+p.reference, func(r *http.Request) {
		r.Header.Set("Authorization", "Bearer "+p.bearer)
		r.Header.Set("Accept", "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, "+
			"application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.docker.distribution.manifest.v2+json")
	})
	if err != nil {
		return "", err
	}
	if status != http.StatusOK {
		return "", &refusal{reason(status, text), "docs/refused.md explains the messages of the registry"}
	}
	var m struct {
		MediaType string `json:"mediaType"`
		Manifests []any
	}
	if json.Unmarshal(text, &m) == nil && len(m.Manifests) > 0 {
		return "an index; rules are applied when a node requests the image for its platform", nil
	}
	return "the node gets the image", nil
}

// get sends a request to the registry.
func (p *pull) get(ctx context.Context, path string, sign func(*http.Request)) (status int, text []byte, _ error) {
	issuer, err := p.app.Issuer()
	if err != nil {
		return 0, nil, err
	}
	scheme, _, _ := strings.Cut(issuer, "://")
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+p.host+path, nil)
	if err != nil {
		return 0, nil, problem.Usage("%q is not the name of an image", p.host+"/"+p.repo)
	}
	sign(r)
	resp, err := p.app.Transmit(r)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	text, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	return resp.StatusCode, text, err
}

// reason returns the message of an error of the registry.
func reason(status int, text []byte) string {
	var failed struct{ Errors []struct{ Message string } }
	if json.Unmarshal(text, &failed) == nil && len(failed.Errors) > 0 {
		return failed.Errors[0].Message
	}
	return fmt.Sprintf("the registry answers with status %d", status)
}
