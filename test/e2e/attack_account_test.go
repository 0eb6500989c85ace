package e2e_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/emptypb"

	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	signinpb "github.com/holdfast-dev/holdfast/gen/signin/v1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
)

// A signInBrowser is a client for the sign-in pages. It stores cookies and does not follow redirects.
type signInBrowser struct {
	*http.Client
	t *testing.T
	w *world
}

// signInBrowser returns a new browser whose requests come from the given local IP address.
func (w *world) signInBrowser(t *testing.T, address string) *signInBrowser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	transport := &http.Transport{DialContext: func(ctx context.Context, network, to string) (net.Conn, error) {
		return dialer.DialContext(ctx, network, to)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &signInBrowser{&http.Client{Jar: jar, Transport: transport, CheckRedirect: stay}, t, w}
}

// A shownPage is the response that a browser received.
type shownPage struct {
	status         int
	body, location string
	header         http.Header
}

func (b *signInBrowser) get(path string) shownPage {
	b.t.Helper()
	return b.request(http.MethodGet, path, nil)
}

// post sends a form. fields contains alternating names and values.
func (b *signInBrowser) post(path string, fields ...string) shownPage {
	b.t.Helper()
	form := url.Values{}
	for i := 0; i+1 < len(fields); i += 2 {
		form.Add(fields[i], fields[i+1])
	}
	return b.request(http.MethodPost, path, form)
}

func (b *signInBrowser) request(method, path string, form url.Values) shownPage {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.w.BaseURL+path, strings.NewReader(form.Encode()))
	if err != nil {
		b.t.Fatal(err)
	}
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	resp, err := b.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return shownPage{resp.StatusCode, string(body), resp.Header.Get("Location"), resp.Header}
}

// begin starts a sign-in and returns the ID of the sign-in flow.
func (b *signInBrowser) begin() string {
	b.t.Helper()
	page := b.get("/signin")
	_, flow, ok := strings.Cut(page.location, "flow=")
	if !ok {
		b.t.Fatalf("no sign-in started: %d %s\n%s", page.status, page.location, page.body)
	}
	return flow
}

// try starts a sign-in, sends a password, and returns the last page. If organization is not empty, it enters the
// organization first.
func (b *signInBrowser) try(organization, email, password string) shownPage {
	b.t.Helper()
	flow := b.begin()
	if organization != "" {
		b.post("/signin/organization", "flow", flow, "organization", organization)
	}
	return b.post("/signin/password", "flow", flow, "email", email, "password", password)
}

// in reports whether the page redirects to the account page, which means that the sign-in succeeded.
func (p shownPage) in() bool {
	// New members are redirected to the welcome page.
	return p.location == "/account" || strings.HasPrefix(p.location, "/account/welcome?")
}

// A localPerson has an account with a password.
type localPerson struct{ uid, email, password string }

// ownedOrg creates an organization. It returns the UID of the organization, and a token for an owner who owns no
// other organization.
func (w *world) ownedOrg(t *testing.T, name string) (uid, owner string) {
	t.Helper()
	uid = w.child(t, "", name)
	person := resource.UserUID("https://people.example", "owner of "+name)
	w.bind(t, uid, string(person), string(resource.OwnerRole))
	return uid, w.mint(t, person, token.Claims{})
}

// personIn creates an account in an organization, and sets the password through the one-time link.
func (w *world) personIn(t *testing.T, bearer, org, email, password string) localPerson {
	t.Helper()
	made := must[*signinpb.CreateAccountResponse](t, w.overGRPC, bearer, &signinpb.CreateAccountRequest{
		Parent: org, Account: &signinpb.Account{Email: email, Name: "N"},
	})
	w.followLink(t, made.GetLink().GetUrl(), password)
	return localPerson{made.GetAccount().GetUid(), email, password}
}

// followLink opens a one-time link, sets a password, and returns the browser that did so.
func (w *world) followLink(t *testing.T, link, password string) *signInBrowser {
	t.Helper()
	b := w.signInBrowser(t, "127.0.0.1")
	_, query, _ := strings.Cut(link, "?")
	b.get("/link?" + query)
	if page := b.post("/link", "password", password); !page.in() {
		t.Fatalf("the link leads to status %d, location %s\n%s", page.status, page.location, page.body)
	}
	return b
}

// TestAttackAccountEnumeration checks that an organization cannot find out which e-mail addresses have accounts in
// other organizations: neither by creating accounts, nor by a dry run, nor with the form of an invite.
func TestAttackAccountEnumeration(t *testing.T) {
	storyWorld(t, func(t *testing.T, w *world) {
		other, owner := w.ownedOrg(t, "other")
		victim := w.personIn(t, w.Token, string(w.Organization), "ann@example.test", "a quiet violet anchor of ann")
		for protocol, call := range w.protocols() {
			for _, dryRun := range []bool{true, false} {
				for _, email := range []string{victim.email, w.OwnerEmail, "nobody@example.test"} {
					out, st := call(t, owner, &signinpb.CreateAccountRequest{
						Parent: other, Account: &signinpb.Account{Email: email}, ValidateOnly: dryRun,
					})
					if st != nil {
						t.Fatalf("%s, validate_only %v, %s: %v", protocol, dryRun, email, st)
					}
					if !dryRun {
						made := out.(*signinpb.CreateAccountResponse).GetAccount()
						must[*emptypb.Empty](t, call, owner, &signinpb.DeleteAccountRequest{Uid: made.GetUid()})
					}
				}
			}
			// Within one organization, an address can have only one account.
			for _, dryRun := range []bool{true, false} {
				_, st := call(t, w.Token, &signinpb.CreateAccountRequest{
					Parent: string(w.Organization), Account: &signinpb.Account{Email: victim.email}, ValidateOnly: dryRun,
				})
				if st.Code() != codes.AlreadyExists {
					t.Errorf("%s: a second account for an address in one organization: %v", protocol, st)
				}
			}
		}
		invite := must[*iampb.GroupInvite](t, w.overGRPC, owner, &iampb.CreateGroupInviteRequest{
			Parent: other, GroupInvite: invitation(),
		})
		b := w.signInBrowser(t, "127.0.0.1")
		_, flow, _ := strings.Cut(b.get("/join?code="+invite.GetCode()).location, "flow=")
		page := b.post("/signin/join", "flow", flow, "email", victim.email, "name", "N", "password", "another yellow anchor")
		if !page.in() {
			t.Errorf("the form of an invite reveals accounts in other organizations: %d\n%s", page.status, page.body)
		}
		if !w.signInBrowser(t, "127.0.0.1").try("", victim.email, victim.password).in() {
			t.Error("the person can no longer sign in")
		}
	})
}

// TestAttackAccountSquatting: if other organizations create accounts for a person's e-mail address, before or after
// the person's own account, then the person is not locked out, and the other organizations get no access to the
// person's account.
func TestAttackAccountSquatting(t *testing.T) {
	const email = "ann@example.test"
	storyWorld(t, func(t *testing.T, w *world) {
		squat := func(from, to int) {
			for i := from; i < to; i++ {
				org, owner := w.ownedOrg(t, fmt.Sprint("squatter-", i))
				w.personIn(t, owner, org, email, fmt.Sprint("the squatter's password ", i))
			}
		}
		squat(0, 5)
		honest := w.personIn(t, w.Token, string(w.Organization), email, "a quiet violet anchor of ann")
		squat(5, 6)
		name := organizationName(t, w)
		b := w.signInBrowser(t, "127.0.0.1")
		if page := b.try(name, email, honest.password); !page.in() {
			t.Fatalf("sign-in with the name of the organization fails: %d\n%s", page.status, page.body)
		}
		if page := b.get("/account"); !strings.Contains(page.body, "<dd>"+name+"</dd>") {
			t.Errorf("signed in to another organization:\n%s", page.body)
		}
		// The server now recognizes this browser, so it first tries the account that this browser has used.
		b.Jar = withoutCookie(t, b, "hf_session")
		if page := b.try("", email, honest.password); !page.in() {
			t.Errorf("a browser that has signed in before: %d\n%s", page.status, page.body)
		}
		squatter := w.signInBrowser(t, "127.0.0.1")
		if page := squatter.try(name, email, "the squatter's password 0"); page.in() {
			if page := squatter.get("/account"); strings.Contains(page.body, "<dd>"+name+"</dd>") {
				t.Errorf("the squatter's password opens the honest account:\n%s", page.body)
			}
		}
	})
}

// withoutCookie returns the cookies of a browser except the named one.
func withoutCookie(t *testing.T, b *signInBrowser, name string) http.CookieJar {
	t.Helper()
	base, err := url.Parse(b.w.BaseURL)
	if err != nil {
		t.Fatal(err)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range b.Jar.Cookies(base) {
		if c.Name != name {
			c.Path = "/"
			jar.SetCookies(base, []*http.Cookie{c})
		}
	}
	return jar
}

// organizationName returns the name of the organization of w.
func organizationName(t *testing.T, w *world) string {
	t.Helper()
	return must[*iampb.Group](t, w.overGRPC, w.Token, &iampb.GetGroupRequest{Uid: string(w.Organization)}).GetName()
}
