package sts_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/platform/outbound"
	"github.com/holdfast-dev/holdfast/internal/platform/secret"
	"github.com/holdfast-dev/holdfast/internal/signin/issuers"
	"github.com/holdfast-dev/holdfast/internal/signin/sts"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

const (
	tenant      = "11111111-2222-3333-4444-555555555555"
	application = "66666666-7777-8888-9999-000000000000"
)

// A cloud simulates the token services of the clouds. It accepts known subjects and records
// the requests.
type cloud struct {
	*httptest.Server
	known bool
	sent  map[string]string // claims of the last token
	path  string
}

func newCloud(t *testing.T) *cloud {
	c := &cloud{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw := r.FormValue("WebIdentityToken") + r.FormValue("subject_token") + r.FormValue("client_assertion")
		c.sent, c.path = map[string]string{}, r.URL.Path
		if parts := strings.Split(raw, "."); len(parts) == 3 {
			b, _ := base64.RawURLEncoding.DecodeString(parts[1])
			_ = json.Unmarshal(b, &c.sent)
		}
		amazon := r.FormValue("Action") != ""
		switch {
		case amazon && c.known && r.FormValue("RoleArn") == "arn:aws:iam::123456789012:role/holdfast":
			_, _ = w.Write([]byte(`<AssumeRoleWithWebIdentityResponse/>`))
		case amazon:
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(`<ErrorResponse><Error><Code>AccessDenied</Code>` +
				`<Message>Not authorized</Message></Error></ErrorResponse>`))
		case c.known:
			_, _ = w.Write([]byte(`{"access_token":"theirs"}`))
		default:
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(`{"error":"invalid_grant","error_description":"the pool does not know us"}`))
		}
	}))
	t.Cleanup(c.Close)
	return c
}

func TestTryAccount(t *testing.T) {
	s := storetest.Open(t, storetest.SQLite(t))
	checker, err := authz.Load(t.Context(), s.DB, nil)
	if err != nil {
		t.Fatal(err)
	}
	issuer, err := token.New(t.Context(), s.DB, token.Config{Issuer: "https://here.test", Key: secret.NewKey()})
	if err != nil {
		t.Fatal(err)
	}
	issuers, err := issuers.New(issuers.Config{})
	if err != nil {
		t.Fatal(err)
	}
	c := newCloud(t)
	client := outbound.Client(outbound.Config{Loopback: true})
	x := sts.New(s.DB, checker, issuer, issuers, sts.Config{
		BaseURL: "https://here.test", AWS: sts.AWS{Endpoint: c.URL, Client: client}, Clouds: sts.Clouds{
			Google: c.URL, Azure: c.URL,
		},
	})
	a := resource.AccountAssociation{
		UID: resource.NewRoot(), Amazon: &resource.AmazonAccount{Account: "123456789012"},
		Google: &resource.GoogleProject{ProjectID: "project", ProjectNumber: "42"},
		Azure:  &resource.AzureTenant{TenantID: tenant, ClientIDs: map[string]string{"app": application}},
	}
	for kind, want := range map[resource.ProviderType]struct{ audience, refusal string }{
		resource.ProviderAmazon: {"sts.amazonaws.com", "AccessDenied"},
		resource.ProviderGoogle: {
			"https://iam.googleapis.com/projects/42/locations/global/workloadIdentityPools/holdfast/providers/holdfast",
			"the pool does not know us",
		},
		resource.ProviderAzure: {"api://AzureADTokenExchange", "invalid_grant"},
	} {
		c.known = true
		r, err := x.TryAccount(t.Context(), a, kind)
		if err != nil || !r.Ready {
			t.Errorf("%d: %+v, %v", kind, r, err)
		}
		if c.sent["sub"] != string(a.UID) || c.sent["aud"] != want.audience {
			t.Errorf("%d: the token says %v", kind, c.sent)
		}
		c.known = false
		r, err = x.TryAccount(t.Context(), a, kind)
		if err != nil || r.Ready || r.Reason != "REFUSED" || !strings.Contains(r.Message, want.refusal) {
			t.Errorf("%d refused: %+v, %v", kind, r, err)
		}
	}
	a.Google.ProjectNumber = "42/locations/global/workloadIdentityPools/theirs?" // must stay one path segment
	if _, err := x.TryAccount(t.Context(), a, resource.ProviderGoogle); err != nil ||
		!strings.HasPrefix(fmt.Sprint(c.sent["aud"]), "https://iam.googleapis.com/projects/42%2Flocations%2F") {
		t.Errorf("a number that is none: the token says %v, %v", c.sent, err)
	}
	if c.known = true; c.path == "" {
		t.Error("nobody was asked")
	}
	c.Close()
	if r, err := x.TryAccount(t.Context(), a, resource.ProviderAmazon); err != nil || r.Ready ||
		r.Reason != "UNREACHABLE" {
		t.Errorf("nobody there: %+v, %v", r, err)
	}
	a.Azure.ClientIDs = nil
	if r, err := x.TryAccount(t.Context(), a, resource.ProviderAzure); err != nil || r.Ready ||
		r.Reason != "NOT_CONFIGURED" {
		t.Errorf("no application: %+v, %v", r, err)
	}
}
