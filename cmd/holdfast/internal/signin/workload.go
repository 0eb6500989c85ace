package signin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"

	holdfast "github.com/holdfast-dev/holdfast/client"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
)

// SignInAs begins a session as an identity. The proof is the token in file, or the
// platform's token if file is "".
func (a *Agent) SignInAs(ctx context.Context, identity, file string) error {
	api, issuer, s, err := a.target()
	if err != nil {
		return err
	}
	proof, err := a.proof(file)
	if err != nil {
		return err
	}
	next := session{Issuer: issuer, Identity: identity}
	if next.IdentityTokenFile, err = a.renewableFile(file); err != nil {
		return err
	}
	next.Ambient = file == "" && next.IdentityTokenFile == ""
	c, err := a.connect(api, &credential{audience: s.audience, issuer: issuer})
	if err != nil {
		return err
	}
	defer c.Close()
	t, err := a.exchange(ctx, c.Issuer(), holdfast.Workload{Identity: identity, Proof: proof})
	if err != nil {
		return err
	}
	if err := s.begin(ctx, next, t); err != nil {
		return err
	}
	claims, _ := holdfast.ReadClaims(t.Access)
	a.Note("signed in to %s as %s until %s", s.audience, a.callerName(ctx, identity), output.ShortTime(claims.Expires()))
	a.warnOverruled(s)
	return nil
}

// renewableFile returns the file from which a session can read the workload's token
// again. It returns "" for standard input, which can be read only once, and if no file is
// given or set.
func (a *Agent) renewableFile(file string) (string, error) {
	set, err := a.Value("identity_token_file")
	if file = cmp.Or(file, set.Text); err != nil || file == "" || file == "-" {
		return "", err
	}
	return filepath.Abs(file)
}

// assumed returns the credential for an identity in the settings. It stores nothing and
// changes no session, so that a pipeline leaves nothing behind.
func (a *Agent) assumed(audience, identity string) (*credential, error) {
	proof, err := a.proof("")
	if err != nil {
		return nil, err
	}
	return a.workload(audience, holdfast.Workload{Identity: identity, Proof: proof})
}

// workload returns a credential that exchanges tokens at the issuer in the settings.
func (a *Agent) workload(audience string, w holdfast.Workload) (*credential, error) {
	issuer, err := a.Issuer()
	if err != nil {
		return nil, err
	}
	next := func(ctx context.Context, issuer *holdfast.Issuer, _ tokens) (tokens, error) {
		return a.exchange(ctx, issuer, w)
	}
	return &credential{audience: audience, issuer: issuer, next: next}, nil
}

// exchange exchanges the proof of a workload for a token.
func (a *Agent) exchange(ctx context.Context, issuer *holdfast.Issuer, w holdfast.Workload) (tokens, error) {
	if err := a.allow(issuer.Address); err != nil {
		return tokens{}, err
	}
	t, err := w.Next(ctx, issuer, tokens{})
	if err != nil {
		return tokens{}, refusedExchange(err, w.Identity)
	}
	return t, nil
}

// refusedExchange returns the problem of a refused exchange. It replaces the usual hints,
// which are about the caller's own token, with commands that show why the workload's
// token was refused.
func refusedExchange(err error, identity string) *problem.Problem {
	p := Refused(err, map[string]string{"identity": "--identity", "aud": "--audience"})
	if _, isProblem := errors.AsType[*problem.Problem](err); isProblem || (p.Code != problem.ExitDenied &&
		p.Code != problem.ExitUnauthenticated) {
		return p
	}
	p.Hints = nil
	if identity != "" && p.Code == problem.ExitDenied {
		p.Hints = []string{"anyone who may read the identity can see why: holdfast iam identities denials " + identity}
	}
	if identity != "" {
		p = p.Hint("if you have the workload's token: holdfast iam identities explain " + identity + " --token-file FILE")
	}
	return p
}

// proof returns the proof of an identity: the token in a file if one is given or set, or
// else the platform's token.
func (a *Agent) proof(file string) (holdfast.Proof, error) {
	set, err := a.Value("identity_token_file")
	if err != nil {
		return nil, err
	}
	if file = cmp.Or(file, set.Text); file == "" {
		return platformProof, nil
	}
	return func(ctx context.Context, issuer, identity string) (string, error) {
		text, err := a.readProof(ctx, file, issuer, identity)
		if err != nil {
			return "", problem.Usage("identity token: %v", err)
		}
		return text, nil
	}, nil
}

// readProof reads the token in a file, or from standard input if file is "-".
func (a *Agent) readProof(ctx context.Context, file, issuer, identity string) (string, error) {
	if file != "-" {
		return holdfast.File(file)(ctx, issuer, identity)
	}
	text, err := a.ReadText(file)
	if err == nil && !holdfast.IsToken(text) {
		return "", fmt.Errorf("%s does not contain a token", file)
	}
	return text, err
}

func platformProof(ctx context.Context, issuer, identity string) (string, error) {
	text, err := holdfast.Platform(ctx, issuer, identity)
	if !errors.Is(err, holdfast.ErrNoPlatform) {
		return text, err
	}
	p := problem.New(problem.ExitUnauthenticated, "%s", err.Error())
	p.Hints = []string{
		"set its file with --identity-token or HOLDFAST_IDENTITY_TOKEN_FILE",
		"it is found automatically in GitHub Actions (with permissions: id-token: write), GitLab CI (HOLDFAST_ID_TOKEN in " +
			"id_tokens), Buildkite, at " + holdfast.KubernetesTokenFile + ", and with AWS_ACCESS_KEY_ID",
	}
	return "", p
}

// proven returns a Proof that returns a known token.
func proven(token string) holdfast.Proof {
	return func(context.Context, string, string) (string, error) { return token, nil }
}
