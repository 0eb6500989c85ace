package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"google.golang.org/grpc"
)

const (
	signedTokens   = 4096 // of each kind, signed beforehand: what is timed is the server, not the signing
	folderBindings = 25   // of each folder; what one batch takes
	pulledRepo     = "app"
	pulledTag      = "v1"
	signInClient   = "bench" // of the identity provider
)

// A release is a version of holdfastd in a process of its own, with what its
// clients need.
type release struct {
	*depot
	name string // for errors
	api  *side  // a client of its API, as the owner
	conn *grpc.ClientConn

	viewer     string // the role
	bySubject  []credential
	byPattern  []credential
	byProvider []credential
	readers    []reader
}

// A credential is a token of a platform, and the form to exchange it with.
type credential struct{ bearer, form string }

// A reader is somebody who may see a group.
type reader struct{ token, group string }

// release starts a binary on an empty database and prepares it over its public
// API, so that releases with different schemas have the same in them.
func (b *bench) release(ctx context.Context, e engine, dataset, binary string, p *platform) (*release, error) {
	database, _, err := e.create(ctx, dataset)
	if err != nil {
		return nil, err
	}
	if err := e.replace(ctx, database); err != nil {
		return nil, err
	}
	d, err := b.holdfastd(ctx, binary, database)
	if err != nil {
		return nil, err
	}
	v := &release{depot: d, api: newSide(&service{addr: d.address, org: d.org, token: d.api})}
	if v.conn, err = dial(d.address); err != nil {
		return nil, errors.Join(err, d.stop())
	}
	if err := v.prepare(ctx, p); err != nil {
		return nil, errors.Join(fmt.Errorf("prepare: %w", err), v.stop())
	}
	return v, nil
}

func (v *release) stop() error {
	v.api.client.close()
	return errors.Join(v.conn.Close(), v.depot.stop())
}

// url is the address of the server, which is also the audience of its tokens.
func (v *release) url() string { return "http://" + v.address }

func (v *release) prepare(ctx context.Context, p *platform) error {
	if err := v.findViewer(ctx); err != nil {
		return err
	}
	if err := v.api.makeFolders(ctx); err != nil {
		return err
	}
	identities, err := v.makeWorkloads(ctx, p)
	if err != nil {
		return err
	}
	if err := v.bind(ctx, identities); err != nil {
		return err
	}
	if err := v.makePerson(ctx, p); err != nil {
		return err
	}
	next, err := small(ctx, v.depot, pulledRepo)
	if err != nil {
		return err
	}
	return v.putManifest(ctx, pulledRepo, pulledTag, next())
}

// findViewer looks up the role that everybody is given.
func (v *release) findViewer(ctx context.Context) error {
	_, text, err := v.do(ctx, http.StatusOK, http.MethodGet, "/iam/v2beta1/roles?name=viewer", nil)
	if err != nil {
		return err
	}
	var got struct{ Roles []struct{ UID string } }
	if err := json.Unmarshal(text, &got); err != nil {
		return err
	}
	if len(got.Roles) != 1 {
		return fmt.Errorf("there are %d roles called viewer", len(got.Roles))
	}
	v.viewer = got.Roles[0].UID
	return nil
}

// makeWorkloads makes identities that trust the platform, and signs tokens for
// them. Every other identity has a pattern for its subject.
func (v *release) makeWorkloads(ctx context.Context, p *platform) ([]string, error) {
	identities := make([]string, workloads)
	for n := range identities {
		match := map[string]string{"issuer": p.url, "subject": jobSubject(n)}
		if n%2 == 1 {
			match = map[string]string{"issuer": p.url, "subjectPattern": jobPattern(n)}
		}
		body, err := json.Marshal(map[string]any{"name": fmt.Sprintf("app%d", n), "claimMatch": match})
		if err != nil {
			return nil, err
		}
		if identities[n], err = v.api.post(ctx, "/iam/v2beta1/identities/"+string(v.api.folders[n]), string(body)); err != nil {
			return nil, err
		}
	}
	for i := range 2 * signedTokens {
		n := i % workloads
		bearer, err := p.job("ES256", n, v.url())
		if err != nil {
			return nil, err
		}
		c := credential{bearer, url.Values{"aud": {v.url()}, "identity": {identities[n]}}.Encode()}
		if n%2 == 1 {
			v.byPattern = append(v.byPattern, c)
		} else {
			v.bySubject = append(v.bySubject, c)
		}
	}
	return identities, nil
}

// bind lets some of the identities see each folder, and gets them the tokens to
// do so with.
func (v *release) bind(ctx context.Context, identities []string) error {
	tokens := make([]string, len(identities))
	for n := range tokens {
		from := v.bySubject
		if n%2 == 1 {
			from = v.byPattern
		}
		var err error
		if tokens[n], err = v.exchangeOne(ctx, from[n/2]); err != nil {
			return err
		}
	}
	for i, folder := range v.api.folders {
		var requests []string
		for k := range folderBindings {
			n := (i + k) % len(identities)
			requests = append(requests, fmt.Sprintf(`{"roleBinding": {"identityUid": %q}}`, identities[n]))
			v.readers = append(v.readers, reader{tokens[n], string(folder)})
		}
		body := fmt.Sprintf(`{"parent": %q, "roleUid": %q, "requests": [%s]}`, folder, v.viewer, strings.Join(requests, ", "))
		if _, err := v.api.post(ctx, "/iam/v2beta1/roleBindings:batchCreate", body); err != nil {
			return err
		}
	}
	return nil
}

// makePerson makes the platform the identity provider of the organization, and
// has a person join who signs in with it.
func (v *release) makePerson(ctx context.Context, p *platform) error {
	provider, err := v.api.post(ctx, "/iam/v2beta1/identityProviders/"+string(v.org), fmt.Sprintf(
		`{"name": "people", "defaultRole": %q, "oidc": {"issuer": %q, "clientId": %q, "clientSecret": "secret"}}`, v.viewer, p.url, signInClient))
	if err != nil {
		return err
	}
	form := url.Values{"aud": {v.url()}, "identity_provider": {provider}}.Encode()
	for range signedTokens {
		bearer, err := p.sign("ES256", map[string]any{"sub": "person", "aud": signInClient})
		if err != nil {
			return err
		}
		v.byProvider = append(v.byProvider, credential{bearer, form})
	}
	invite := fmt.Sprintf(`{"roleUid": %q, "ttl": "3600s"}`, v.viewer)
	_, text, err := v.do(ctx, http.StatusOK, http.MethodPost, "/iam/v2beta1/groupInvites/"+string(v.api.folders[0]), strings.NewReader(invite))
	if err != nil {
		return err
	}
	var made struct{ Code string }
	if err := json.Unmarshal(text, &made); err != nil {
		return err
	}
	_, _, err = v.do(ctx, http.StatusOK, http.MethodPost, "/auth/v1/register", strings.NewReader(fmt.Sprintf(`{"code": %q}`, made.Code)),
		"Authorization", "Bearer "+v.byProvider[0].bearer)
	return err
}

// exchangeOne exchanges a token, and returns the one it got.
func (v *release) exchangeOne(ctx context.Context, c credential) (string, error) {
	_, text, err := v.do(ctx, http.StatusOK, http.MethodPost, "/sts/exchange", strings.NewReader(c.form),
		"Authorization", "Bearer "+c.bearer, "Content-Type", "application/x-www-form-urlencoded")
	if err != nil {
		return "", err
	}
	var got struct{ Token string }
	err = json.Unmarshal(text, &got)
	return got.Token, err
}
