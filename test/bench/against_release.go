package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"google.golang.org/grpc"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

const (
	signedTokens   = 4096 // of each kind, signed before the measurement
	folderBindings = 25   // of each folder, which is the limit of one batch
	pulledRepo     = "app"
	pulledTag      = "v1"
	signInClient   = "bench" // of the identity provider
)

// A release is a version of holdfastd in a process of its own, with what its clients need.
type release struct {
	*process
	name string // for errors
	conn *grpc.ClientConn

	folders    []resource.UID
	viewer     string // the UID of the role
	bySubject  []credential
	byPattern  []credential
	byProvider []credential
	readers    []string // tokens of identities that may see a folder, one for each binding
}

// A credential is a token of a platform, and the form of its exchange.
type credential struct{ bearer, form string }

// release starts a binary on an empty database. It prepares the database over the public
// API, so that releases with different schemas have the same content.
func (m *measurement) release(
	ctx context.Context, name, dataset, binary string, p *platform, env ...string,
) *release {
	d := m.holdfastd(ctx, binary, empty(ctx, m.engine, dataset), env...)
	v := &release{process: d, name: name, conn: m.dial(d.address)}
	v.folders = v.makeFolders(ctx, d.dev.Organization)
	v.findViewer(ctx)
	v.bind(ctx, v.makeWorkloads(ctx, p))
	v.makePerson(ctx, p)
	next := smallImages(ctx, v.process, pulledRepo)
	check(v.putManifest(ctx, pulledRepo, pulledTag, next()))
	return v
}

// findViewer looks up the role that every identity gets.
func (v *release) findViewer(ctx context.Context) {
	var got struct{ Roles []struct{ UID string } }
	check(v.doJSON(ctx, http.MethodGet, "/iam/v2beta1/roles?name=viewer", nil, &got))
	if len(got.Roles) != 1 {
		check(fmt.Errorf("there are %d roles called viewer", len(got.Roles)))
	}
	v.viewer = got.Roles[0].UID
}

// makeWorkloads creates identities that trust the platform, and signs tokens for them. Every
// other identity has a pattern for its subject.
func (v *release) makeWorkloads(ctx context.Context, p *platform) []string {
	identities := make([]string, workloads)
	for n := range identities {
		match := map[string]string{"issuer": p.url, "subject": jobSubject(n)}
		if n%2 == 1 {
			match = map[string]string{"issuer": p.url, "subjectPattern": jobPattern(n)}
		}
		body := must(json.Marshal(map[string]any{"name": fmt.Sprintf("app%d", n), "claimMatch": match}))
		identities[n] = must(v.post(ctx, "/iam/v2beta1/identities/"+string(v.folders[n]), string(body)))
	}
	for i := range 2 * signedTokens {
		n := i % workloads
		form := url.Values{"aud": {v.address}, "identity": {identities[n]}}.Encode()
		c := credential{p.job("ES256", n, v.address), form}
		if n%2 == 1 {
			v.byPattern = append(v.byPattern, c)
		} else {
			v.bySubject = append(v.bySubject, c)
		}
	}
	return identities
}

// bind lets some of the identities see each folder, and exchanges a token for each.
func (v *release) bind(ctx context.Context, identities []string) {
	tokens := make([]string, len(identities))
	for n := range tokens {
		from := v.bySubject
		if n%2 == 1 {
			from = v.byPattern
		}
		tokens[n] = must(v.exchange(ctx, from[n/2]))
	}
	for i, folder := range v.folders {
		var requests []string
		for k := range folderBindings {
			n := (i + k) % len(identities)
			requests = append(requests, fmt.Sprintf(`{"roleBinding": {"identityUid": %q}}`, identities[n]))
			v.readers = append(v.readers, tokens[n])
		}
		body := fmt.Sprintf(`{"parent": %q, "roleUid": %q, "requests": [%s]}`,
			folder, v.viewer, strings.Join(requests, ", "))
		must(v.post(ctx, "/iam/v2beta1/roleBindings:batchCreate", body))
	}
}

// makePerson makes the platform an identity provider of the organization, and lets a person
// join who signs in with it.
func (v *release) makePerson(ctx context.Context, p *platform) {
	provider := must(v.post(ctx, "/iam/v2beta1/identityProviders/"+string(v.dev.Organization), fmt.Sprintf(
		`{"name": "people", "defaultRole": %q, "oidc": {"issuer": %q, "clientId": %q, "clientSecret": "secret"}}`,
		v.viewer, p.url, signInClient)))
	form := url.Values{"aud": {v.address}, "identity_provider": {provider}}.Encode()
	for range signedTokens {
		bearer := p.sign("ES256", map[string]any{"sub": "person", "aud": signInClient})
		v.byProvider = append(v.byProvider, credential{bearer, form})
	}
	invite := fmt.Sprintf(`{"roleUid": %q, "ttl": "3600s"}`, v.viewer)
	path := "/iam/v2beta1/groupInvites/" + string(v.folders[0])
	var made struct{ Code string }
	check(v.doJSON(ctx, http.MethodPost, path, strings.NewReader(invite), &made))
	body := strings.NewReader(fmt.Sprintf(`{"code": %q}`, made.Code))
	_, _, err := v.do(ctx, http.StatusOK, http.MethodPost, "/auth/v1/register", body,
		"Authorization", "Bearer "+v.byProvider[0].bearer)
	check(err)
}
