package program

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"google.golang.org/grpc"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/test/bench/rig"
)

const (
	signedTokens   = 4096 // number of tokens of each kind, which are signed before the measurement
	folderBindings = 25   // number of bindings in each folder, the limit of one batch request
	pulledRepo     = "app"
	pulledTag      = "v1"
	signInClient   = "bench" // client ID at the identity provider
)

// A release is a version of holdfastd in a process of its own, with the tokens and UIDs that its clients need.
type release struct {
	*rig.Process
	name string // name of the release in errors
	conn *grpc.ClientConn

	folders    []resource.UID
	viewer     string // UID of the role viewer
	bySubject  []rig.Credential
	byPattern  []rig.Credential
	byProvider []rig.Credential
	readers    []string // tokens of identities that may see a folder, one for each binding

	nextManifest func() []byte // returns a new manifest at each call
}

// startRelease starts a binary on an empty database. It fills the database over the public API, so that releases with
// different database schemas have the same content.
func startRelease(
	ctx context.Context, m *rig.Measurement, name, dataset, binary string, p *rig.Platform, env ...string,
) *release {
	d := m.StartHoldfastd(ctx, binary, rig.EmptyDatabase(ctx, m.Engine, dataset), env...)
	v := &release{Process: d, name: name, conn: m.Dial(d.Address)}
	v.folders = v.CreateFolders(ctx, d.Dev.Organization)
	v.findViewer(ctx)
	v.bind(ctx, v.makeWorkloads(ctx, p))
	v.makePerson(ctx, p)
	v.nextManifest = rig.SmallImages(ctx, v.Process, pulledRepo)
	rig.Check(v.PutManifest(ctx, pulledRepo, pulledTag, v.nextManifest()))
	return v
}

// findViewer looks up the UID of the role that every identity gets.
func (v *release) findViewer(ctx context.Context) {
	var got struct{ Roles []struct{ UID string } }
	rig.Check(v.DoJSON(ctx, http.MethodGet, "/iam/v2beta1/roles?name=viewer", nil, &got))
	if len(got.Roles) != 1 {
		rig.Check(fmt.Errorf("there are %d roles called viewer", len(got.Roles)))
	}
	v.viewer = got.Roles[0].UID
}

// makeWorkloads creates identities that trust the platform, and signs tokens for them. Every second identity has a
// pattern instead of an exact subject.
func (v *release) makeWorkloads(ctx context.Context, p *rig.Platform) []string {
	identities := make([]string, rig.Workloads)
	for n := range identities {
		match := map[string]string{"issuer": p.URL, "subject": rig.JobSubject(n)}
		if n%2 == 1 {
			match = map[string]string{"issuer": p.URL, "subjectPattern": rig.JobPattern(n)}
		}
		body := rig.Must(json.Marshal(map[string]any{"name": fmt.Sprintf("app%d", n), "claimMatch": match}))
		identities[n] = rig.Must(v.Post(ctx, "/iam/v2beta1/identities/"+string(v.folders[n]), string(body)))
	}
	for i := range 2 * signedTokens {
		n := i % rig.Workloads
		form := url.Values{"aud": {v.Address}, "identity": {identities[n]}}.Encode()
		c := rig.Credential{Bearer: p.JobToken("ES256", n, v.Address), Form: form}
		if n%2 == 1 {
			v.byPattern = append(v.byPattern, c)
		} else {
			v.bySubject = append(v.bySubject, c)
		}
	}
	return identities
}

// bind gives some of the identities a role in each folder, and exchanges a token for each identity. The number of
// identities per folder is folderBindings.
func (v *release) bind(ctx context.Context, identities []string) {
	tokens := make([]string, len(identities))
	for n := range tokens {
		from := v.bySubject
		if n%2 == 1 {
			from = v.byPattern
		}
		tokens[n] = rig.Must(v.Exchange(ctx, from[n/2]))
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
		rig.Must(v.Post(ctx, "/iam/v2beta1/roleBindings:batchCreate", body))
	}
}

// makePerson adds the platform as an identity provider of the organization. A person signs in through it and joins
// the organization.
func (v *release) makePerson(ctx context.Context, p *rig.Platform) {
	provider := rig.Must(v.Post(ctx, "/iam/v2beta1/identityProviders/"+string(v.Dev.Organization), fmt.Sprintf(
		`{"name": "people", "defaultRole": %q, "oidc": {"issuer": %q, "clientId": %q, "clientSecret": "secret"}}`,
		v.viewer, p.URL, signInClient)))
	form := url.Values{"aud": {v.Address}, "identity_provider": {provider}}.Encode()
	for range signedTokens {
		bearer := p.Sign("ES256", map[string]any{"sub": "person", "aud": signInClient})
		v.byProvider = append(v.byProvider, rig.Credential{Bearer: bearer, Form: form})
	}
	invite := fmt.Sprintf(`{"roleUid": %q, "ttl": "3600s"}`, v.viewer)
	path := "/iam/v2beta1/groupInvites/" + string(v.folders[0])
	var made struct{ Code string }
	rig.Check(v.DoJSON(ctx, http.MethodPost, path, strings.NewReader(invite), &made))
	body := strings.NewReader(fmt.Sprintf(`{"code": %q}`, made.Code))
	_, _, err := v.Do(ctx, http.StatusOK, http.MethodPost, "/auth/v1/register", body,
		"Authorization", "Bearer "+v.byProvider[0].Bearer)
	rig.Check(err)
}
