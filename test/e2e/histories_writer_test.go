package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	advisoriespb "github.com/holdfast-dev/holdfast/gen/advisories/v1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
)

// A writeOutcome is the answer to a write of a guest.
type writeOutcome string

const (
	writeAccepted writeOutcome = "accepted"
	writeDenied   writeOutcome = "denied"
	writeUnknown  writeOutcome = "unknown" // the write may be committed, now or later, or never
	writeAborted  writeOutcome = "aborted" // the write was not committed, for another reason than the access
)

// possible reports whether a server can give this answer.
func (o writeOutcome) possible(access bool) bool {
	return o == writeUnknown || access == (o == writeAccepted)
}

// outcomeOf returns the outcome of a request with an HTTP status. The status is 0 if there was no answer.
func outcomeOf(status int) writeOutcome {
	switch status {
	case http.StatusOK, http.StatusCreated:
		return writeAccepted
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
		return writeDenied
	case http.StatusBadRequest, http.StatusConflict, http.StatusTooManyRequests:
		return writeAborted
	}
	return writeUnknown
}

// A historyWrite is a kind of write that guests make while their access is granted and revoked.
type historyWrite struct {
	name    string
	host    string // audience of the tokens
	prepare func(ctx context.Context, c *historyClient, group procGroup) (about string, ok bool)
	item    func(n int) string
	write   func(ctx context.Context, a *historyAuthor, item string) writeOutcome
	list    func(group procGroup) string // path of the list of written items
	gives   bool                         // whether the write gives access without an end, which needs such access
	streams bool                         // whether the answer can be denied after the commit, because it is a stream
}

// A historyAuthor is a guest that writes to one replica.
type historyAuthor struct {
	group procGroup
	about string // result of historyWrite.prepare
	api   *procClient
	conn  *grpc.ClientConn
}

func (a *historyAuthor) post(ctx context.Context, path string, body any) writeOutcome {
	return outcomeOf(a.api.code(ctx, http.MethodPost, path+string(a.group.UID), body))
}

const historyRegistry = "holdfast.test" // registry of the replicas

// repoOf returns the path of a repo in the registry.
func repoOf(group procGroup, repo string) string { return "/v2/dev/" + group.Name + "/" + repo }

// pushIndex pushes an index without images, and returns the HTTP status.
func pushIndex(ctx context.Context, api *procClient, path string) int {
	index := map[string]any{"schemaVersion": 2, "mediaType": indexType, "manifests": []any{}}
	a, err := api.callWith(ctx, http.MethodPut, path, indexType, index)
	if err != nil {
		return 0
	}
	return a.status
}

var historyWrites = []historyWrite{
	{
		name: "grant", host: procBase, gives: true,
		item: func(n int) string { return string(resource.UserUID("https://people.example", fmt.Sprint("friend", n))) },
		write: func(ctx context.Context, a *historyAuthor, item string) writeOutcome {
			viewer := resource.ManagedRoleUID("viewer")
			return a.post(ctx, "/iam/v2beta1/roleBindings/", map[string]any{"identityUid": item, "roleUid": viewer})
		},
		list: func(group procGroup) string {
			return "/iam/v2beta1/roleBindings?pageSize=200&group=" + string(group.UID)
		},
	},
	{
		name: "invite", host: procBase, gives: true,
		item: func(n int) string { return fmt.Sprintf("friend%d@people.example", n) },
		write: func(ctx context.Context, a *historyAuthor, item string) writeOutcome {
			viewer := resource.ManagedRoleUID("viewer")
			return a.post(ctx, "/iam/v2beta1/groupInvites/", map[string]any{"email": item, "roleUid": viewer, "ttl": "3600s"})
		},
		list: func(group procGroup) string {
			return "/iam/v2beta1/groupInvites?pageSize=200&uidp.childrenOf=" + string(group.UID)
		},
	},
	{
		name: "push", host: historyRegistry, item: tagOf,
		prepare: func(ctx context.Context, c *historyClient, group procGroup) (string, bool) {
			return c.setUpRepo(ctx, group, "app")
		},
		write: func(ctx context.Context, a *historyAuthor, item string) writeOutcome {
			return outcomeOf(pushIndex(ctx, a.api, repoOf(a.group, "app")+"/manifests/"+item))
		},
		list: func(group procGroup) string { return repoOf(group, "app") + "/tags/list" },
	},
	{
		name: "copy", host: procBase, item: tagOf,
		prepare: func(ctx context.Context, c *historyClient, group procGroup) (string, bool) {
			_, ok := c.setUpRepo(ctx, group, "copies")
			repo, made := c.setUpRepo(ctx, group, "app")
			return repo, ok && made && c.push(ctx, repoOf(group, "app")+"/manifests/v1")
		},
		write: func(ctx context.Context, a *historyAuthor, item string) writeOutcome {
			return a.post(ctx, "/oci/v1/copies/", map[string]any{
				"repo": "copies", "fromRepoUid": a.about, "references": []string{"v1"}, "tag": item,
			})
		},
		list: func(group procGroup) string { return repoOf(group, "copies") + "/tags/list" },
	},
	{
		name: "import", host: procBase, streams: true,
		item:  func(n int) string { return fmt.Sprintf("T-%05d", n) },
		write: func(ctx context.Context, a *historyAuthor, item string) writeOutcome { return a.imports(ctx, item) },
		list: func(group procGroup) string {
			return "/vulnerabilities/v2beta1/advisories?pageSize=200&uidp.childrenOf=" + string(group.UID)
		},
	},
}

func tagOf(n int) string { return fmt.Sprint("tag", n) }

// setUpRepo creates a repo and returns its UID.
func (c *historyClient) setUpRepo(ctx context.Context, group procGroup, name string) (string, bool) {
	path := "/registry/v2beta1/repos/" + string(group.UID)
	repo, ok := setUp[procGroup](ctx, c, path, map[string]any{"name": name})
	return string(repo.UID), ok
}

// push pushes an index without images. It tries random replicas until one of them accepts it.
func (c *historyClient) push(ctx context.Context, path string) bool {
	for ctx.Err() == nil {
		api := c.dial(rand.IntN(len(c.replicas)), c.dev.RegistryToken)
		code := pushIndex(ctx, api, path)
		api.close()
		if code == http.StatusCreated {
			return true
		}
		time.Sleep(20 * time.Millisecond)
	}
	return false
}

// imports imports one advisory.
func (a *historyAuthor) imports(ctx context.Context, item string) writeOutcome {
	ctx, cancel := context.WithTimeout(ctx, historyTimeout)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+a.api.token)
	stream, err := advisoriespb.NewAdvisoryWritingServiceClient(a.conn).ImportAdvisories(ctx)
	if err != nil {
		return writeUnknown
	}
	record := `{"schema_version":"1.6.0","id":"` + item + `","modified":"2026-01-02T03:04:05Z","summary":"A record",` +
		`"affected":[{"package":{"ecosystem":"npm","name":"p"},"ranges":[{"type":"SEMVER","events":[{"introduced":"0"}]}]}]}`
	for _, p := range []any{string(a.group.UID), doc("record.json", len(record)), []byte(record)} {
		_ = stream.Send(part(p)) // Recv returns the reason if it fails
	}
	_ = stream.CloseSend()
	for err == nil {
		_, err = stream.Recv()
	}
	if errors.Is(err, io.EOF) {
		return writeAccepted
	}
	switch status.Code(err) {
	case codes.Unauthenticated, codes.PermissionDenied, codes.NotFound:
		return writeDenied
	case codes.Aborted, codes.InvalidArgument, codes.ResourceExhausted:
		return writeAborted
	}
	return writeUnknown
}

// A historyList is the answer to any of the lists.
type historyList struct {
	NextPageToken string `json:"nextPageToken"`
	RoleBindings  []struct {
		Identity struct {
			UID string `json:"uid"`
		} `json:"identity"`
	} `json:"roleBindings"`
	GroupInvites []struct {
		Email string `json:"email"`
	} `json:"groupInvites"`
	Advisories []struct {
		AdvisoryID string `json:"advisoryId"`
	} `json:"advisories"`
	Tags []string `json:"tags"`
}

func (l historyList) items() []string {
	items := l.Tags
	for _, b := range l.RoleBindings {
		items = append(items, b.Identity.UID)
	}
	for _, i := range l.GroupInvites {
		items = append(items, i.Email)
	}
	for _, a := range l.Advisories {
		items = append(items, a.AdvisoryID)
	}
	return items
}

// list reads the written items from a random replica, and reports whether it got an answer.
func (c *historyClient) list(group procGroup, w historyWrite) bool {
	i, path := rand.IntN(len(c.replicas)), w.list(group)
	api := c.each[i]
	if strings.HasPrefix(path, "/v2/") {
		api = c.dial(i, c.dev.RegistryToken)
		defer api.close()
	}
	call := c.now()
	a, err := api.call(context.WithoutCancel(c.t.Context()), http.MethodGet, path, nil)
	end := c.now()
	var list historyList
	if err != nil || a.status != http.StatusOK || json.Unmarshal(a.body, &list) != nil {
		c.counted("reads without an answer")
		return false
	}
	if list.NextPageToken != "" {
		c.t.Errorf("there are more items of the kind %s than one page has", w.name)
	}
	c.add(c.key, porcupine.Operation{
		ClientId: i, Input: historyInput{op: "list"}, Output: list.items(), Metadata: a.status, Call: call, Return: end,
	})
	return true
}

// historyAuthors is the number of connections to each replica on which a guest writes.
const historyAuthors = 2

// Limits of the items that a guest writes.
const (
	maxItems      = 150 // the guest stops writing then, so that a list has all items on one page
	itemsPerGrant = 5   // the next revocation comes then, while further items are being written
)

// writer creates an identity. One client grants and revokes its role until its token ends, while the identity writes on
// every replica, and while other clients list what was written.
func (h *histories) writer(ctx context.Context, w historyWrite) {
	c := h.client()
	defer c.close()
	group, identity, ok := c.setUpGuest(ctx)
	if !ok {
		return
	}
	about := ""
	if w.prepare != nil {
		if about, ok = w.prepare(ctx, c, group); !ok {
			return
		}
	}
	bearer, err := h.issuer.Mint(ctx, token.Claims{Subject: identity, Audience: []string{w.host}})
	if err != nil {
		return // the test has ended
	}
	writing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var number, written atomic.Int64
	var authors sync.WaitGroup
	for i := range h.replicas {
		for range historyAuthors {
			authors.Go(func() {
				a := c.author(i, bearer, group, about)
				defer a.close()
				for writing.Err() == nil && written.Load() < maxItems {
					if c.try(i, a, w, int(number.Add(1))) == writeAccepted {
						written.Add(1)
					}
				}
			})
		}
	}
	life, cancel := context.WithTimeout(ctx, historyLife)
	defer cancel()
	useGrant := func() { // waits until the guest has written something
		before, late := written.Load(), time.Now().Add(time.Second)
		for written.Load() < before+itemsPerGrant && time.Now().Before(late) && life.Err() == nil {
			time.Sleep(time.Millisecond)
		}
	}
	kinds := slices.Sorted(maps.Keys(historyToggles))
	if w.gives {
		kinds = slices.DeleteFunc(kinds, func(kind string) bool { return kind == historyExpiry })
	}
	kind := kinds[c.key%len(kinds)]
	historyToggles[kind](c, life, group.UID, identity, useGrant, func() {
		c.counted("revocations: " + kind)
		c.list(group, w)
	})
	c.end(identity)
	c.list(group, w)
	time.Sleep(200 * time.Millisecond) // gives the writers time to send more requests
	stop()
	authors.Wait()
	for !c.list(group, w) { // the faults end with the test
		time.Sleep(20 * time.Millisecond)
	}
}

const historyExpiry = "grant expired"

// historyToggles are the ways in which the access of a writing guest begins and ends. Each calls granted and revoked
// after each change, until ctx ends or the outcome of a request is unknown.
var historyToggles = map[string]func(
	c *historyClient, ctx context.Context, group, identity resource.UID, granted, revoked func(),
){
	"binding deleted": func(
		c *historyClient, ctx context.Context, group, identity resource.UID, granted, revoked func(),
	) {
		body := map[string]any{"identityUid": identity, "roleUid": resource.OwnerRole}
		c.toggle(ctx, 0, group, body, granted, revoked)
	},
	"role reduced": (*historyClient).toggleRole,
	historyExpiry:  (*historyClient).toggleExpiring,
}

// toggleRole gives a guest a role without the necessary capabilities, and then extends and reduces the role.
func (c *historyClient) toggleRole(ctx context.Context, group, identity resource.UID, granted, revoked func()) {
	type role struct {
		UID          resource.UID `json:"uid"`
		Capabilities []string     `json:"capabilities"`
	}
	var owner role
	for owner.Capabilities == nil {
		api := c.each[rand.IntN(len(c.each))]
		a, err := api.call(ctx, http.MethodGet, "/iam/v2beta1/roles/"+string(resource.OwnerRole), nil)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && a.status == http.StatusOK && json.Unmarshal(a.body, &owner) != nil:
			c.t.Errorf("the owner role: %s", a.body)
			return
		}
	}
	small := map[string]any{"name": "changing", "capabilities": owner.Capabilities[:1]}
	made, ok := setUp[role](ctx, c, "/iam/v2beta1/roles/"+string(group), small)
	if !ok {
		return
	}
	body := map[string]any{"identityUid": identity, "roleUid": made.UID}
	if _, ok = setUp[procGroup](ctx, c, "/iam/v2beta1/roleBindings/"+string(group), body); !ok {
		return
	}
	path := "/iam/v2beta1/roles/" + string(made.UID) + "?updateMask=capabilities"
	set := func(op string, capabilities []string) bool {
		return c.write(historyInput{op: op}, http.MethodPatch, path, map[string]any{"capabilities": capabilities}, nil)
	}
	for ctx.Err() == nil && set("grant", owner.Capabilities) {
		granted()
		if !set("revoke", owner.Capabilities[:1]) {
			return
		}
		revoked()
		time.Sleep(rand.N(100 * time.Millisecond))
	}
}

// Limits of the time at which a grant ends. A replica may take the time of the database for later than it is, by at
// most the duration of a heartbeat. The time is compared just before the commit, which takes a moment itself. On
// PostgreSQL the database does both. On SQLite the server does, and it may be paused in between.
const (
	endsEarly        = 2500 * time.Millisecond
	endsLate         = 2 * time.Second
	endsLateOnSQLite = endsLate + longestPause
)

func (h *histories) endsLate() time.Duration {
	if len(h.links) == 0 {
		return endsLateOnSQLite
	}
	return endsLate
}

// toggleExpiring grants a guest the owner role for a few seconds, again and again.
func (c *historyClient) toggleExpiring(ctx context.Context, group, identity resource.UID, granted, revoked func()) {
	for ctx.Err() == nil {
		end := time.Now().Add(endsEarly + 1500*time.Millisecond).Truncate(time.Second)
		body := map[string]any{
			"identityUid": identity, "roleUid": resource.OwnerRole, "expireTime": end.UTC().Format(time.RFC3339),
		}
		done := c.write(historyInput{op: "grant"}, http.MethodPost, "/iam/v2beta1/roleBindings/"+string(group), body, nil)
		if done {
			granted()
		}
		time.Sleep(time.Until(end.Add(c.endsLate())))
		c.add(c.key, porcupine.Operation{
			Input: historyInput{op: "revoke"}, Output: true, Metadata: http.StatusOK,
			Call: int64(end.Add(-endsEarly).Sub(c.start)), Return: int64(end.Add(c.endsLate()).Sub(c.start)),
		})
		if !done {
			return
		}
		revoked()
	}
}

// author returns a client of replica i for a guest.
func (h *histories) author(i int, bearer string, group procGroup, about string) *historyAuthor {
	dial := h.dialer(i)
	conn, err := grpc.NewClient("passthrough:///replica", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx) }))
	if err != nil {
		panic(err) // the options are constant
	}
	return &historyAuthor{group, about, h.dial(i, bearer), conn}
}

func (a *historyAuthor) close() {
	a.api.close()
	_ = a.conn.Close()
}

// try writes an item and records the outcome.
func (c *historyClient) try(i int, a *historyAuthor, w historyWrite, n int) writeOutcome {
	in, call := historyInput{op: "write", item: w.item(n)}, c.now()
	outcome := w.write(context.WithoutCancel(c.t.Context()), a, in.item)
	c.counted(w.name + " " + string(outcome))
	end := c.now()
	if outcome != writeAccepted {
		defer time.Sleep(30 * time.Millisecond)
	}
	if outcome == writeAborted {
		return outcome
	}
	switch {
	case outcome == writeUnknown:
		end = forever
	case outcome == writeDenied && w.streams:
		outcome = writeUnknown // but the write cannot be committed after the denial
	}
	c.add(c.key, porcupine.Operation{ClientId: i, Input: in, Output: outcome, Call: call, Return: end})
	return outcome
}

// TestHistoryModel checks that the checker finds a write that was committed after the revocation had returned, and
// allows a write that was committed before, even if it was answered later.
func TestHistoryModel(t *testing.T) {
	t.Parallel()
	const item = "friend"
	op := func(call, end int64, name string, output any) porcupine.Operation {
		return porcupine.Operation{Input: historyInput{op: name, item: item}, Output: output, Call: call, Return: end}
	}
	revoked := []porcupine.Operation{op(0, 1, "grant", true), op(10, 20, "revoke", true)}
	for name, tt := range map[string]struct {
		operations []porcupine.Operation
		want       porcupine.CheckResult
	}{
		"committed before, answered later": {
			[]porcupine.Operation{op(5, 40, "write", writeAccepted), op(25, 30, "see", true)}, porcupine.Ok,
		},
		"committed later": {
			[]porcupine.Operation{
				op(5, 40, "write", writeAccepted), op(25, 30, "see", false), op(50, 60, "see", true),
			}, porcupine.Illegal,
		},
		"committed later, without an answer": {
			[]porcupine.Operation{
				op(5, forever, "write", writeUnknown), op(25, 30, "see", false), op(50, 60, "see", true),
			}, porcupine.Illegal,
		},
		"never committed": {
			[]porcupine.Operation{op(5, forever, "write", writeUnknown), op(25, 30, "see", false)}, porcupine.Ok,
		},
		"committed after a denied stream": {
			[]porcupine.Operation{op(25, 30, "write", writeUnknown), op(50, 60, "see", true)}, porcupine.Illegal,
		},
		"committed before a denied stream": {
			[]porcupine.Operation{op(5, 30, "write", writeUnknown), op(50, 60, "see", true)}, porcupine.Ok,
		},
		"begun later": {[]porcupine.Operation{op(25, 30, "write", writeAccepted)}, porcupine.Illegal},
		"denied, but committed": {
			[]porcupine.Operation{op(5, 40, "write", writeDenied), op(50, 60, "see", true)}, porcupine.Illegal,
		},
		"denied while it had access": {[]porcupine.Operation{op(5, 8, "write", writeDenied)}, porcupine.Illegal},
	} {
		got := porcupine.CheckOperationsTimeout(historyModel, slices.Concat(revoked, tt.operations), 0)
		if got != tt.want {
			t.Errorf("%s: the checker says %s, want %s", name, got, tt.want)
		}
	}
}
