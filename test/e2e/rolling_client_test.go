package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

const (
	rollingAttempt  = 10 * time.Second       // time limit of one attempt
	rollingPatience = time.Minute            // time limit for all attempts of a request
	rollingPause    = 100 * time.Millisecond // pause before the next attempt
	rollingEvery    = 20 * time.Millisecond  // interval between the steps of a client
)

// rollingClients are clients that call the replicas of a cluster. They repeat failed requests as docs/running.md
// describes.
type rollingClients struct {
	t    *testing.T
	c    *rollingCluster
	dev  procDev
	http *http.Client
	done chan struct{} // closed when the clients must stop
	stop func()        // stops the clients, and waits until they have stopped
	wg   sync.WaitGroup

	pages atomic.Bool // whether read also lists a second page

	mu      sync.Mutex
	counts  map[string]*rollingCount // by the kind of request
	groups  []procGroup              // acknowledged groups
	images  []string                 // acknowledged images
	checked []int                    // number of answers about a grant, by replica
}

// A rollingCount counts the requests of one kind.
type rollingCount struct {
	requests, repeated, failed int
	longest                    time.Duration // longest duration of a request with all its attempts
}

// rollingLoad starts the clients. Each client runs one step per interval.
func rollingLoad(t *testing.T, c *rollingCluster, every time.Duration) *rollingClients {
	t.Helper()
	l := &rollingClients{
		t: t, c: c, dev: c.replicas[0].dev, done: make(chan struct{}), counts: map[string]*rollingCount{},
		http:    &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}},
		checked: make([]int, len(c.addresses)),
	}
	l.stop = sync.OnceFunc(func() {
		close(l.done)
		l.wg.Wait()
	})
	t.Cleanup(l.stop)
	for i := range 2 {
		l.run(every, l.write(i))
		l.run(every, l.read)
		l.run(every, l.grant(i))
		l.run(every, l.push(i))
	}
	l.run(every, l.pull)
	l.run(every, l.exchange())
	l.run(every, l.readOverGRPC())
	l.progress()
	return l
}

// run calls step once per interval until the clients must stop.
func (l *rollingClients) run(every time.Duration, step func()) {
	l.wg.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-l.done:
				return
			case <-tick.C:
				step()
			}
		}
	})
}

// givenUp reports whether the test has failed, so that the clients need not wait any longer.
func (l *rollingClients) givenUp() bool {
	select {
	case <-l.done:
		return l.t.Failed()
	default:
		return false
	}
}

// progress waits until the clients have sent each kind of request again.
func (l *rollingClients) progress() {
	l.t.Helper()
	read := func() map[string]int {
		l.mu.Lock()
		defer l.mu.Unlock()
		n := map[string]int{}
		for what, count := range l.counts {
			n[what] = count.requests
		}
		return n
	}
	before := read()
	for _, what := range []string{"write", "read", "grant", "push", "pull", "exchange", "gRPC"} {
		procUntil(l.t, "more requests: "+what, func() bool { return read()[what] >= before[what]+5 })
	}
}

// repeated returns the number of attempts so far after which a request had to be sent again.
func (l *rollingClients) repeated() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, count := range l.counts {
		n += count.repeated
	}
	return n
}

// A rollingRequest is a request that may be repeated.
type rollingRequest struct {
	what         string // kind of request, for the report
	method, path string
	token        string
	body         []byte
	contentType  string
	want         int // expected status
	wantRepeated int // status that also means success if the request was sent before; 0 for none
}

// A rollingAnswer is the response to the last attempt.
type rollingAnswer struct {
	status   int
	header   http.Header
	body     []byte
	repeated bool // an earlier attempt may have had an effect, or may still have one
}

// send sends a request, and repeats it if there was no response, or if the response came from the proxy instead of a
// replica. If the request fails in the end, send fails the test and returns false.
func (l *rollingClients) send(r rollingRequest) (a rollingAnswer, ok bool) {
	start := time.Now()
	var err error
	for {
		a.status, a.header, a.body, err = l.attempt(r)
		if err == nil && !rollingUnavailable(a.status) {
			break
		}
		if time.Since(start) > rollingPatience || l.givenUp() {
			break
		}
		a.repeated = true
		l.again(r.what)
	}
	ok = err == nil && (a.status == r.want || a.repeated && r.wantRepeated != 0 && a.status == r.wantRepeated)
	l.count(r.what, start, ok)
	if !ok {
		l.t.Errorf("%s: %s %s: %d %s (%v)", r.what, r.method, r.path, a.status, a.body, err)
	}
	return a, ok
}

func rollingUnavailable(status int) bool {
	return slices.Contains([]int{http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout}, status)
}

func (l *rollingClients) attempt(r rollingRequest) (status int, header http.Header, body []byte, _ error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.t.Context()), rollingAttempt)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, r.method, l.c.url()+r.path, bytes.NewReader(r.body))
	if err != nil {
		return 0, nil, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+r.token)
	if r.contentType != "" {
		req.Header.Set("Content-Type", r.contentType)
	}
	resp, err := l.http.Do(req)
	if err != nil {
		return 0, nil, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header, body, err
}

// again counts an attempt that must be repeated, and then waits before the next attempt. It counts before it waits,
// because a request that failed when a replica crashed may have to wait for the lease of that replica. If it counted
// later, the repetition would be attributed to the next replica that is stopped.
func (l *rollingClients) again(what string) {
	l.mu.Lock()
	l.countOf(what).repeated++
	l.mu.Unlock()
	time.Sleep(rollingPause)
}

// countOf returns the count of a kind of request. The caller must hold l.mu.
func (l *rollingClients) countOf(what string) *rollingCount {
	if l.counts[what] == nil {
		l.counts[what] = &rollingCount{}
	}
	return l.counts[what]
}

func (l *rollingClients) count(what string, start time.Time, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.countOf(what)
	n.requests++
	if !ok {
		n.failed++
	}
	n.longest = max(n.longest, time.Since(start))
}

// api sends a JSON request as the owner and decodes the response into out.
func (l *rollingClients) api(what, method, path string, body, out any, wantRepeated int) (a rollingAnswer, ok bool) {
	text, err := json.Marshal(body)
	if err != nil {
		l.t.Error(err)
		return a, false
	}
	if body == nil {
		text = nil
	}
	a, ok = l.send(rollingRequest{
		what: what, method: method, path: path, token: l.dev.Token, body: text, contentType: "application/json",
		want: http.StatusOK, wantRepeated: wantRepeated,
	})
	if !ok || a.status != http.StatusOK || out == nil {
		return a, ok
	}
	if err := json.Unmarshal(a.body, out); err != nil {
		l.t.Errorf("%s %s: %v in %s", method, path, err, a.body)
		return a, false
	}
	return a, true
}

// create creates a resource of a kind in a group. If the answer to a repeated request is that the resource exists
// already, then an earlier attempt created it, and create looks it up with filter.
func (l *rollingClients) create(
	what, kind string, in resource.UID, body any, filter string,
) (made procGroup, repeated, ok bool) {
	path := "/iam/v2beta1/" + kind
	a, ok := l.api(what, http.MethodPost, path+"/"+string(in), body, &made, http.StatusConflict)
	if !ok || a.status == http.StatusOK {
		return made, a.repeated, ok
	}
	var found map[string]json.RawMessage
	if _, ok := l.api(what, http.MethodGet, path+"?uidp.children_of="+string(in)+filter, nil, &found, 0); !ok {
		return made, true, false
	}
	var rows []procGroup
	if err := json.Unmarshal(found[kind], &rows); err != nil || len(rows) != 1 {
		l.t.Errorf("%s: found %s, want one match of %s (%v)", what, found[kind], filter, err)
		return made, true, false
	}
	return rows[0], true, true
}

// write returns a step that creates a group and changes it.
func (l *rollingClients) write(writer int) func() {
	n := 0
	return func() {
		n++
		name := fmt.Sprintf("w%d-%d", writer, n)
		g, _, ok := l.create("write", "groups", l.dev.Organization, map[string]string{"name": name}, "&name="+name)
		if !ok {
			return
		}
		if g.Name != name {
			l.t.Errorf("the created group %s has the name %s", name, g.Name)
			return
		}
		g.Description = "changed by " + name
		change := map[string]string{"description": g.Description}
		if _, ok := l.api("write", http.MethodPatch, "/iam/v2beta1/groups/"+string(g.UID), change, nil, 0); ok {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.groups = append(l.groups, g)
		}
	}
}

// read lists groups, and reads an acknowledged group. During an upgrade it lists two pages; the second page may come
// from a replica of another version.
func (l *rollingClients) read() {
	const list = "/iam/v2beta1/groups?page_size=20&order_by=create_time%20desc"
	var first struct{ NextPageToken string }
	if _, ok := l.api("read", http.MethodGet, list, nil, &first, 0); ok && first.NextPageToken != "" && l.pages.Load() {
		l.api("read", http.MethodGet, list+"&page_token="+first.NextPageToken, nil, nil, 0)
	}
	l.mu.Lock()
	var g procGroup
	if len(l.groups) > 0 {
		g = l.groups[rand.IntN(len(l.groups))]
	}
	l.mu.Unlock()
	if g.UID != "" {
		l.expectGroup(g)
	}
}

// expectGroup fails the test unless a group has the acknowledged content.
func (l *rollingClients) expectGroup(want procGroup) {
	var got procGroup
	if _, ok := l.api("read", http.MethodGet, "/iam/v2beta1/groups/"+string(want.UID), nil, &got, 0); ok && got != want {
		l.t.Errorf("acknowledged %v, and there is %v", want, got)
	}
}

// readOverGRPC returns a step that lists groups over gRPC.
func (l *rollingClients) readOverGRPC() func() {
	conn, err := grpc.NewClient(l.c.proxy, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { conn.Close() })
	groups := iampb.NewGroupsServiceClient(conn)
	outgoing := context.WithoutCancel(l.t.Context())
	outgoing = metadata.AppendToOutgoingContext(outgoing, "authorization", "Bearer "+l.dev.Token)
	return func() {
		start := time.Now()
		for {
			ctx, cancel := context.WithTimeout(outgoing, rollingAttempt)
			_, err := groups.ListGroups(ctx, &iampb.ListGroupsRequest{PageSize: 5})
			cancel()
			again := status.Code(err) == codes.Unavailable || status.Code(err) == codes.DeadlineExceeded
			if again && time.Since(start) < rollingPatience && !l.givenUp() {
				l.again("gRPC")
				continue
			}
			l.count("gRPC", start, err == nil)
			if err != nil {
				l.t.Errorf("gRPC: %v", err)
			}
			return
		}
	}
}

// A rollingGuest is an identity that gets a role in a group, and then loses it.
type rollingGuest struct {
	identity resource.UID
	group    resource.UID
	token    string
	since    time.Time
}

// rollingStay is the time for which one guest is used. It is shorter than the lifetime of a token.
const rollingStay = 30 * time.Minute

// grant returns a step that grants a role to a guest and revokes it. After each change it asks all replicas, and all of
// them must have applied the change. If a grant was sent twice, the first attempt may take effect at any time, so
// the guest is not used again. In this case the previous version also answers that the grant exists without waiting
// for the other replicas.
func (l *rollingClients) grant(granter int) func() {
	var guest *rollingGuest
	n := 0
	return func() {
		if guest == nil || time.Since(guest.since) > rollingStay {
			n++
			guest = l.invite(fmt.Sprintf("g%d-%d", granter, n))
		}
		if guest == nil {
			return
		}
		role := map[string]any{"identityUid": guest.identity, "roleUid": resource.ManagedRoleUID("viewer")}
		binding, repeated, ok := l.create("grant", "roleBindings", guest.group, role, "")
		if !ok {
			guest = nil
			return
		}
		if !repeated {
			l.ask(guest, http.StatusOK, "given")
		}
		path := "/iam/v2beta1/roleBindings/" + string(binding.UID)
		if _, ok := l.api("grant", http.MethodDelete, path, nil, nil, http.StatusNotFound); !ok || repeated {
			guest = nil
			return
		}
		l.ask(guest, http.StatusForbidden, "taken")
	}
}

// invite creates a group and an identity, and gets a token for the identity.
func (l *rollingClients) invite(name string) *rollingGuest {
	g, _, ok := l.create("grant", "groups", l.dev.Organization, map[string]string{"name": name}, "&name="+name)
	if !ok {
		return nil
	}
	match := map[string]string{"issuer": l.c.url() + "/dev/issuer", "subject": name}
	body := map[string]any{"name": name, "claimMatch": match}
	i, _, ok := l.create("grant", "identities", g.UID, body, "&name="+name)
	if !ok {
		return nil
	}
	issued, ok := l.token(i.UID, name)
	if !ok {
		return nil
	}
	return &rollingGuest{i.UID, g.UID, issued, time.Now()}
}

// ask asks every replica whether the guest may see the group. It fails the test if a replica gives a wrong answer.
func (l *rollingClients) ask(g *rollingGuest, want int, what string) {
	var wg sync.WaitGroup
	for i, address := range l.c.addresses {
		wg.Go(func() {
			replica := &procClient{address, g.token, l.http}
			ctx, cancel := context.WithTimeout(context.WithoutCancel(l.t.Context()), rollingAttempt)
			defer cancel()
			got := replica.code(ctx, http.MethodGet, "/iam/v2beta1/groups/"+string(g.group), nil)
			// The replica is down, or it says that it cannot answer at the moment.
			if got == 0 || got == http.StatusServiceUnavailable {
				return
			}
			if got != want {
				l.t.Errorf("replica %d responds with %d after the role was %s, want %d", i, got, what, want)
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			l.checked[i]++
		})
	}
	wg.Wait()
}

// token exchanges a token of the test issuer for a token of an identity, and reports whether that succeeded.
func (l *rollingClients) token(identity resource.UID, subject string) (issued string, ok bool) {
	claims, err := json.Marshal(map[string]string{"sub": subject, "aud": l.c.url()})
	if err != nil {
		l.t.Error(err)
		return "", false
	}
	var answer struct{ Token string }
	for _, r := range []rollingRequest{
		{path: "/dev/issuer/token", body: claims, contentType: "application/json"},
		{path: "/sts/exchange?" + url.Values{"aud": {l.c.url()}, "identity": {string(identity)}}.Encode()},
	} {
		r.what, r.method, r.token, r.want = "exchange", http.MethodPost, answer.Token, http.StatusOK
		a, ok := l.send(r)
		if !ok {
			return "", false
		}
		if err := json.Unmarshal(a.body, &answer); err != nil || answer.Token == "" {
			l.t.Errorf("exchange: %v in %s", err, a.body)
			return "", false
		}
	}
	return answer.Token, true
}

// exchange returns a step that exchanges a token and uses it.
func (l *rollingClients) exchange() func() {
	var guest *rollingGuest
	return func() {
		if guest == nil {
			guest = l.invite("exchanger")
		}
		if guest == nil {
			return
		}
		issued, ok := l.token(guest.identity, "exchanger")
		if !ok {
			return
		}
		l.send(rollingRequest{
			what: "exchange", method: http.MethodGet, path: "/iam/v2beta1/groups?page_size=1", token: issued,
			want: http.StatusOK,
		})
	}
}

// registry sends a request to the registry.
func (l *rollingClients) registry(what, method, path string, body []byte, want int) (rollingAnswer, bool) {
	r := rollingRequest{what: what, method: method, path: path, token: l.dev.RegistryToken, body: body, want: want}
	if strings.Contains(path, "/manifests/") {
		r.contentType = "application/vnd.oci.image.manifest.v1+json"
	}
	return l.send(r)
}
