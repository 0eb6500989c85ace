package e2e_test

import (
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	authpb "github.com/holdfast-dev/holdfast/gen/auth"
	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	organizationpb "github.com/holdfast-dev/holdfast/gen/organization/v1"
	signinpb "github.com/holdfast-dev/holdfast/gen/signin/v1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// bindingsOf returns how many role bindings a group has.
func (w *world) bindingsOf(t *testing.T, group string) int {
	t.Helper()
	list := must[*iampb.ListRoleBindingsResponse](t, w.overGRPC, w.Token, &iampb.ListRoleBindingsRequest{Group: group})
	return int(list.GetTotalCount())
}

// TestAttackGrantsInFlight: an attacker sends grants on many connections while an administrator deletes the attacker's
// binding. No grant is made after the deletion has returned.
func TestAttackGrantsInFlight(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(t *testing.T, w *world) {
		for round := range 4 {
			group := w.child(t, string(w.Organization), fmt.Sprint("round", round))
			mallory := resource.UserUID("https://people.example", fmt.Sprint("mallory", round))
			binding := w.bind(t, group, string(mallory), ownerRole)
			bearer := w.mint(t, mallory, token.Claims{})
			var wg sync.WaitGroup
			var revoked atomic.Bool
			for i := range 12 {
				wg.Go(func() {
					for n := 0; n < 500 && !revoked.Load(); n++ {
						friend := resource.UserUID("https://people.example", fmt.Sprint("friend", round, i, n))
						body := `{"identity_uid":"` + string(friend) + `","role_uid":"` + ownerRole + `"}`
						if w.send(t, bearer, "POST", "/iam/v2beta1/roleBindings/"+group, body).status == http.StatusForbidden {
							return
						}
					}
				})
			}
			for w.bindingsOf(t, group) < 20 { // the attack is under way
			}
			w.delete(t, "/iam/v2beta1/roleBindings/"+binding)
			after := w.bindingsOf(t, group)
			revoked.Store(true)
			wg.Wait()
			if n := w.bindingsOf(t, group); n != after {
				t.Errorf("%d bindings were created after the attacker's binding was deleted", n-after)
			}
		}
	})
}

// delete sends a DELETE request as the owner, which must succeed.
func (w *world) delete(t *testing.T, target string) {
	t.Helper()
	if r := w.send(t, w.Token, "DELETE", target, ""); r.status != http.StatusOK {
		t.Errorf("DELETE %s: HTTP status %d\n%s", target, r.status, r.body)
	}
}

// A halfRequest is a request whose body is not sent completely.
type halfRequest struct {
	body *io.PipeWriter
	done chan int // receives the HTTP status
}

// sendHalf starts a request and sends the first bytes of its body.
func (w *world) sendHalf(t *testing.T, r *http.Request, first string) *halfRequest {
	t.Helper()
	body, out := io.Pipe()
	r.Body = body
	h := &halfRequest{out, make(chan int, 1)}
	go func() {
		resp, err := w.client.Do(r)
		if err != nil {
			h.done <- 0
			return
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		h.done <- resp.StatusCode
	}()
	if _, err := io.WriteString(out, first); err != nil {
		t.Fatal(err)
	}
	return h
}

// finish sends the rest of the body and returns the HTTP status of the answer, or 0 if there is none.
func (h *halfRequest) finish(rest string) int {
	go func() {
		_, _ = io.WriteString(h.body, rest) // fails if the server has answered
		_ = h.body.Close()
	}()
	return <-h.done
}

// TestAttackHalfSentGrant: a request whose last bytes arrive after the caller's access was revoked changes nothing.
func TestAttackHalfSentGrant(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(t *testing.T, w *world) {
		folder := w.child(t, string(w.Organization), "folder")
		robot := w.robot(t, string(w.Organization), "robot")
		w.bind(t, folder, robot, ownerRole)
		bearer := w.mint(t, resource.UID(robot), token.Claims{})
		grant := func() *halfRequest {
			target := w.BaseURL + "/iam/v2beta1/roleBindings/" + folder
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, target, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer "+bearer)
			r.Header.Set("Content-Type", "application/json")
			return w.sendHalf(t, r, `{"i`)
		}
		rest := `dentity_uid":"` + string(bob) + `","role_uid":"` + ownerRole + `"}`
		if status := grant().finish(rest); status != http.StatusOK {
			t.Errorf("without a revocation: HTTP status %d", status)
		}
		half, before := grant(), w.bindingsOf(t, folder)
		w.delete(t, "/iam/v2beta1/identities/"+robot)
		if status := half.finish(rest); status != http.StatusUnauthorized && status != http.StatusForbidden {
			t.Errorf("after the identity was deleted: HTTP status %d", status)
		}
		if n := w.bindingsOf(t, folder); n >= before { // the binding of the deleted identity is gone, too
			t.Errorf("there are %d bindings, and before the deletion there were %d", n, before)
		}
	})
}

// TestAttackHalfSentPush: an upload and a manifest whose last bytes arrive after the pusher's identity was deleted are
// refused.
func TestAttackHalfSentPush(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(t *testing.T, w *world) {
		folder := w.child(t, string(w.Organization), "folder")
		robot := w.robot(t, string(w.Organization), "robot")
		w.bind(t, folder, robot, ownerRole)
		const name = "dev/folder/app"
		bearer := w.mint(t, resource.UID(robot), token.Claims{Audience: []string{w.RegistryHost}})
		half := func(verb, target, kind, first string) *halfRequest {
			r, err := http.NewRequestWithContext(t.Context(), verb, w.BaseURL+target, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer "+bearer)
			r.Header.Set("Content-Type", kind)
			return w.sendHalf(t, r, first)
		}
		begin := w.oci(t, bearer, "POST", "/v2/"+name+"/blobs/uploads/", "")
		patch := half("PATCH", begin.header.Get("Location"), octets, strings.Repeat("a", 1<<20))
		manifest := `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]}`
		put := half("PUT", "/v2/"+name+"/manifests/prod", "application/vnd.oci.image.index.v1+json", manifest[:9])
		w.delete(t, "/iam/v2beta1/identities/"+robot)
		if status := put.finish(manifest[9:]); status < 400 {
			t.Errorf("the rest of a manifest: HTTP status %d", status)
		}
		if status := patch.finish(strings.Repeat("a", 1<<20)); status != 0 && status < 400 {
			t.Errorf("the rest of an upload: HTTP status %d", status)
		}
	})
}

// notInFlight are the methods that the test of all methods cannot interrupt, each with the reason.
var notInFlight = map[string]string{
	"AccountAssociationsService_CheckAccountAssociation": "only reads",
	"V1_GroupAccountAssociations_Check":                  "only reads",
	"AccessService_LookupNames":                          "only reads",
	"AdvisoryReadingService_BatchQueryAdvisories":        "only reads",
	"AdvisoryReadingService_QueryAdvisories":             "only reads",
	"ExploitedService_QueryExploits":                     "only reads",
	"AdmissionService_CheckImages":                       "only reads",
	"FederationService_ExplainToken":                     "only reads",
	"DeliveriesService_TestSubscription":                 "sends a request, and writes only its log",
	"SignInService_TestIdentityProvider":                 "sends a request, and writes nothing",
	"SecurityTokenService_Exchange":                      "needs no caller",
	"Auth_Register":                                      "depends on the token and the invite in its request",
	"Auth_Delete":                                        "ends the access of its own caller",
	"SecurityTokenService_ExchangeRefreshToken":          "depends on the refresh token in its request",
	"V1_EventIdentities_Create":                          "always refuses",
	"ReportsService_CreateReportSubscription":            "needs the e-mail address of a person, and a mail server",
	"ReportsService_DeleteReportSubscription":            "deletes only what its own caller has created",
}

// needNoBinding are the methods whose callers only need an identity. The test deletes the identity.
var needNoBinding = []string{
	"IdentitiesService_UpdateIdentityMetadata", "V1_EventIdentities_UpdateMetadata", "GroupsService_RequestGroupAccess",
	"V1_Groups_RequestGroupAccess",
}

// maxPositions is the greatest number of writes of one method before which the test revokes access.
const maxPositions = 4

// person returns the UID of a person of the issuer https://people.example.
func person(name string, i int) resource.UID {
	return resource.UserUID("https://people.example", fmt.Sprint(name, i))
}

// The people that seedVictims creates. The caller of a method in needNoBinding is a loner, who has no role binding. A
// visitor has a session.
const (
	loners   = 2 * maxPositions // for each method in needNoBinding
	visitors = 100
)

// seedVictims creates the loners and the visitors, and the other people.
func seedVictims(t *testing.T) func(*storetest.Store) {
	return func(s *storetest.Store) {
		seedPeople(t)(s)
		now := time.Now().UTC().Truncate(time.Millisecond)
		insert := func(name string, i int) {
			match := resource.ClaimMatch{Issuer: "https://people.example", Subject: fmt.Sprint(name, i)}
			err := s.InsertIdentity(t.Context(), resource.Identity{
				UID: person(name, i), Realm: string(peopleProvider.Provider()), Provider: peopleProvider.Provider(),
				Name: match.Subject, Email: "victim@people.example", CreateTime: now, UpdateTime: now, LastSeenTime: now,
				Relationship: resource.Relationship{ClaimMatch: &match},
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		for i := range loners * len(needNoBinding) {
			insert("loner", i)
		}
		for i := range visitors {
			insert("visitor", i)
			id := fmt.Sprint("session", i)
			err := s.StartSession(t.Context(), resource.Session{
				ID: id, Identity: person("visitor", i), CreateTime: now, UsedTime: now, ExpireTime: now.Add(time.Hour),
			}, []byte(id), now.Add(time.Hour))
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A victim is the caller of an example, and the function that ends the caller's access.
type victim struct {
	uid    resource.UID
	bearer string
	revoke func()
}

// change makes a call that must succeed. Unlike must, any goroutine may call it.
func (w *world) change(t *testing.T, bearer string, in proto.Message) {
	t.Helper()
	if _, st := w.overGRPC(t, bearer, in); st != nil {
		t.Errorf("%s: %v", methodOf(in).Name(), st)
	}
}

// newVictims are the ways in which a caller loses access, each with a function that returns a new caller.
var newVictims = map[string]func(t *testing.T, w *world, i int) victim{
	"binding deleted": func(t *testing.T, w *world, i int) victim {
		uid := person("victim", i)
		binding := w.bind(t, string(w.Organization), string(uid), ownerRole)
		return victim{uid, w.mint(t, uid, token.Claims{Email: "victim@people.example"}), func() {
			w.delete(t, "/iam/v2beta1/roleBindings/"+binding)
		}}
	},
	"role reduced": func(t *testing.T, w *world, i int) victim {
		uid := person("victim", i)
		owner := must[*iampb.Role](t, w.overGRPC, w.Token, &iampb.GetRoleRequest{Uid: ownerRole})
		role := w.role(t, string(w.Organization), "all"+rand8(), owner.GetCapabilities()...)
		w.bind(t, string(w.Organization), string(uid), role)
		return victim{uid, w.mint(t, uid, token.Claims{Email: "victim@people.example"}), func() {
			w.change(t, w.Token, &iampb.UpdateRoleRequest{
				// No writing method needs only this capability.
				Role:       &iampb.Role{Uid: role, Capabilities: capabilities("subscriptions.list")},
				UpdateMask: mask("capabilities"),
			})
		}}
	},
	"identity deleted": func(t *testing.T, w *world, _ int) victim {
		robot := w.robot(t, string(w.Organization), "robot"+rand8())
		w.bind(t, string(w.Organization), robot, ownerRole)
		return victim{resource.UID(robot), w.mint(t, resource.UID(robot), token.Claims{Email: "r@people.example"}), func() {
			w.delete(t, "/iam/v2beta1/identities/"+robot)
		}}
	},
	"session ended": func(t *testing.T, w *world, i int) victim {
		if i >= visitors {
			t.Fatalf("there are only %d visitors", visitors)
		}
		uid := person("visitor", i)
		w.bind(t, string(w.Organization), string(uid), ownerRole)
		claims := token.Claims{Email: "victim@people.example", Session: fmt.Sprint("session", i)}
		bearer := w.mint(t, uid, claims)
		return victim{uid, bearer, func() { w.change(t, bearer, &signinpb.EndSessionRequest{Id: "current"}) }}
	},
	"provider changed": func(t *testing.T, w *world, i int) victim {
		uid := person("victim", i)
		w.bind(t, string(w.Organization), string(uid), ownerRole)
		idp := w.post(t, "/iam/v2beta1/identityProviders/"+string(w.Organization), `{"name":"idp`+rand8()+
			`","defaultRole":"`+viewer+`","oidc":{"issuer":"https://people.example","clientId":"c","clientSecret":"s"}}`)
		claims := token.Claims{Email: "victim@people.example", Voucher: resource.NewVoucher(resource.UID(idp), 0)}
		return victim{uid, w.mint(t, uid, claims), func() {
			w.change(t, w.Token, masked(&iampb.IdentityProvider{
				Uid: idp, Configuration: &iampb.IdentityProvider_Oidc{
					Oidc: &iampb.IdentityProvider_OIDC{ClientId: "other", ClientSecret: "s"},
				},
			}, "oidc.client_id", "oidc.client_secret"))
		}}
	},
}

// newLoner returns the i-th person without a role binding. The person is deleted.
func newLoner(t *testing.T, w *world, i int) victim {
	claims := token.Claims{Email: "victim@people.example", EmailVerified: true, Voucher: peopleProvider}
	uid := person("loner", i)
	other := w.mint(t, uid, claims)
	return victim{uid, w.mint(t, uid, claims), func() { w.change(t, other, &authpb.DeletionRequest{Id: string(uid)}) }}
}

// inFlightExamples returns examples that write, for methods whose usual examples write nothing.
func inFlightExamples(t *testing.T, w *world) map[string]example {
	t.Helper()
	folder := w.child(t, string(w.Organization), "in-flight")
	w.publish(t, folder, catalogOf("CVE-2020-0001"))
	w.repo(t, folder, "app")
	w.pushImage(t, "dev/in-flight/app", "v1", "amd64", "a layer of an image in the trash")
	if r := w.oci(t, w.RegistryToken, "DELETE", "/v2/dev/in-flight/app/manifests/v1", ""); r.status >= 400 {
		t.Fatalf("deletion of a tag: HTTP status %d", r.status)
	}
	const account = `{"name":"account","amazon":{"account":"123456789012"}}`
	if r := w.send(t, w.Token, "POST", "/iam/v1/account_associations/"+folder, account); r.status != http.StatusOK {
		t.Fatalf("association: HTTP status %d\n%s", r.status, r.body)
	}
	const vex = `{"@context":"https://openvex.dev/ns/v0.2.0","author":"a","statements":[` +
		`{"vulnerability":{"name":"CVE-1"},"products":[{"@id":"pkg:npm/left"}],` +
		`"status":"not_affected","justification":"component_not_present"}]}`
	must[*findingspb.InventoryPlace](t, w.overGRPC, w.Token, &findingspb.PushInventoryRequest{
		GroupUid: folder, Place: "prod", Entries: []*findingspb.InventoryEntry{{Image: "app:1"}},
	})
	sessions := must[*signinpb.ListSessionsResponse](t, w.overGRPC, w.Token,
		&signinpb.ListSessionsRequest{IdentityUid: string(w.Owner)}).GetSessions()
	if len(sessions) == 0 {
		t.Fatal("the owner has no session")
	}
	document := base64.StdEncoding.EncodeToString([]byte(vex))
	applied := w.child(t, string(w.Organization), "applied")
	state := must[*organizationpb.OrganizationState](t, w.overGRPC, w.Token,
		&organizationpb.GetOrganizationStateRequest{Parent: applied})
	file := fmt.Sprintf(`{"revision":%q,"changes":[{"id":"a","request":{`+
		`"@type":"type.googleapis.com/holdfast.iam.v2beta1.CreateGroupRequest","parent":%q,"group":{"name":"team"}}}]}`,
		state.GetRevision(), applied)
	return map[string]example{
		"OrganizationService_ApplyOrganization": {uid: applied, body: file},
		"VexService_ImportVex":                  {uid: folder, body: `{"document":"` + document + `"}`},
		"ExploitedService_DeleteExploitList":    {uid: folder, query: "format=kev"},
		"InventoryService_DeleteInventory":      {uid: folder, query: "place=prod"},
		"SignInService_EndSession":              {uid: sessions[0].GetId()},
		"TrashService_EmptyTrash":               {uid: folder},
		"V1_GroupAccountAssociations_Update":    {uid: folder, body: account},
	}
}

// A methodAttack calls methods while their callers lose access.
type methodAttack struct {
	*world
	i        *interrupter
	examples map[string]example
	victims  int            // number of victims so far
	lonely   int            // number of loners so far
	visits   int            // number of visitors so far
	kinds    map[string]int // number of interrupted calls, by the way in which the caller lost access
	markers  map[resource.UID]string
	folder   string // its description marks the time of each revocation in the events
}

// isDenial reports whether a code says that the caller has no access.
func isDenial(code codes.Code) bool {
	return code == codes.PermissionDenied || code == codes.Unauthenticated || code == codes.NotFound
}

// newVictim returns a caller for a method, who loses access in a certain way.
func (a *methodAttack) newVictim(t *testing.T, kind, method string) victim {
	if slices.Contains(needNoBinding, method) {
		a.lonely++
		return newLoner(t, a.world, a.lonely-1)
	}
	a.victims++
	if kind == "session ended" {
		a.visits++
		return newVictims[kind](t, a.world, a.visits-1)
	}
	return newVictims[kind](t, a.world, a.victims-1)
}

// call calls a method as a victim, and revokes the victim's access before a write. It reports whether there was such a
// write.
func (a *methodAttack) call(
	t *testing.T, m protoreflect.MethodDescriptor, v victim, position int32, dry bool,
) (reached bool, code codes.Code, message string) {
	t.Helper()
	_, e := exampleOf(a.examples, m)
	e.as = v.bearer
	reached = a.i.interrupt(v.uid, position, func() {
		v.revoke()
		marker := "revoked " + string(v.uid)
		a.markers[v.uid] = marker
		a.change(t, a.Token, &iampb.UpdateGroupRequest{
			Group: &iampb.Group{Uid: a.folder, Description: marker}, UpdateMask: mask("description"),
		})
	}, func() { code, message = a.codeOverGRPC(t, m, e, dry) })
	return reached, code, message
}

// attack calls a method as often as it writes, and revokes the caller's access before another write each time. The
// calls must be denied. With access, the call succeeds.
func (a *methodAttack) attack(t *testing.T, m protoreflect.MethodDescriptor, name string, kinds []string) {
	t.Helper()
	for position := int32(1); position <= maxPositions; position++ {
		kind := kinds[(a.victims+int(position))%len(kinds)]
		if kind == "role reduced" && name == "AccessRequestsService_CreateAccessRequest" { // needs no capability
			kind = "binding deleted"
		}
		reached, code, message := a.call(t, m, a.newVictim(t, kind, name), position, false)
		if !reached && position == 1 && kind == "role reduced" { // only the managed role of owners is enough
			kind = "binding deleted"
			reached, code, message = a.call(t, m, a.newVictim(t, kind, name), position, false)
		}
		switch {
		case reached && !isDenial(code):
			t.Errorf("%s: %s before write %d: %v: %s", name, kind, position, code, message)
		case !reached && position == 1:
			t.Errorf("%s did not write, and notInFlight does not say why: %v: %s", name, code, message)
		}
		if !reached {
			return
		}
		a.kinds[kind]++
		if position > 1 {
			continue
		}
		v := a.newVictim(t, "binding deleted", name)
		if _, code, message = a.call(t, m, v, 0, true); code != codes.OK {
			t.Errorf("%s without a revocation: %v: %s", name, code, message)
		}
		if a.i.writes.Load() < 2 {
			return
		}
	}
}

// attackInEachWay revokes the caller's access in every way before the first write of a method.
func (a *methodAttack) attackInEachWay(t *testing.T, m protoreflect.MethodDescriptor, name string, kinds []string) {
	t.Helper()
	for _, kind := range kinds {
		if reached, code, message := a.call(t, m, a.newVictim(t, kind, name), 1, false); reached && !isDenial(code) {
			t.Errorf("%s: %s before the first write: %v: %s", name, kind, code, message)
		}
	}
}

// TestAttackEveryMethodInFlight calls every method that writes, and ends the caller's access between the authorization
// and each write, in one of several ways. The call must be denied. Afterwards, no event has a victim as its actor
// whose access had ended before.
func TestAttackEveryMethodInFlight(t *testing.T) {
	t.Parallel()
	storetest.EachURL(t, func(t *testing.T, url string) {
		i := &interrupter{}
		w := serve(t, url, server.Config{InspectWorkers: 1, BeforeWrite: i.beforeWrite}, seedVictims(t))
		examples := methodExamples(t, w)
		x := things{org: string(w.Organization)}
		for _, more := range []map[string][]example{
			findingExamples(t, w, x), judgementExamples(t, w, x), signerExamples(t, w, x), requestExamples(t, w, x),
			exploitedExamples(t, w, x),
		} {
			chooseExamples(examples, more)
		}
		maps.Copy(examples, inFlightExamples(t, w))
		a := &methodAttack{
			world: w, i: i, examples: examples, kinds: map[string]int{}, markers: map[resource.UID]string{},
			folder: w.child(t, string(w.Organization), "markers"),
		}
		kinds := slices.Sorted(maps.Keys(newVictims))
		for _, m := range writingMethods() {
			name, e := exampleOf(examples, m)
			if name == "" {
				t.Errorf("no example calls %s", operationOf(m))
				continue
			}
			if notInFlight[name] != "" {
				continue
			}
			if e.as != "" && !slices.Contains(needNoBinding, name) {
				t.Errorf("the example of %s has a caller of its own; add the method to needNoBinding", name)
			}
			a.attack(t, m, name, kinds)
			if name == "SimulationService_Simulate" { // it has no commit, and so a check of its own
				a.attackInEachWay(t, m, name, kinds)
			}
		}
		t.Logf("interrupted calls: %v", a.kinds)
		for _, kind := range kinds {
			if a.kinds[kind] < 20 {
				t.Errorf("only %d calls were interrupted in this way: %s", a.kinds[kind], kind)
			}
		}
		a.checkEvents(t)
	})
}

// checkEvents checks that no event after a revocation has the victim as its actor.
func (a *methodAttack) checkEvents(t *testing.T) {
	t.Helper()
	revoked := map[resource.UID]bool{}
	for _, e := range a.events(t) {
		for uid, marker := range a.markers {
			if e.Subject == resource.UID(a.folder) && strings.Contains(string(e.After), marker) {
				revoked[uid] = true
			}
		}
		if revoked[e.Actor.Subject] {
			t.Errorf("%s was committed after its actor %s had lost access", e.Type, e.Actor.Subject)
		}
	}
	if len(revoked) != len(a.markers) || len(revoked) < 100 {
		t.Errorf("the events have %d of %d revocations", len(revoked), len(a.markers))
	}
}

// exampleOf returns the example for a method, and its name among the examples. It returns "" if there is none.
func exampleOf(examples map[string]example, m protoreflect.MethodDescriptor) (string, example) {
	for _, name := range []string{operationOf(m), string(m.Parent().Name()) + "_" + string(m.Name())} {
		if e, ok := examples[name]; ok {
			return name, e
		}
	}
	return "", example{}
}

// codeOverGRPC calls a method with the request of an example, and returns the result. If dry is set, the request only
// validates, if the method can do that.
func (w *world) codeOverGRPC(t *testing.T, m protoreflect.MethodDescriptor, e example, dry bool) (codes.Code, string) {
	t.Helper()
	name := "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
	in := e.message(t, m)
	if field := m.Input().Fields().ByName("validate_only"); field != nil && dry {
		in.ProtoReflect().Set(field, protoreflect.ValueOfBool(true))
	}
	st := status.Convert(w.conn.Invoke(bearing(t, e.bearer(w)), name, in, newOutput(t, m)))
	return st.Code(), st.Message()
}

// eachMethod calls f with every method of all services.
func eachMethod(f func(protoreflect.MethodDescriptor)) {
	protoregistry.GlobalFiles.RangeFiles(func(file protoreflect.FileDescriptor) bool {
		if !strings.HasPrefix(string(file.Package()), "holdfast.") {
			return true
		}
		for i := range file.Services().Len() {
			list := file.Services().Get(i).Methods()
			for k := range list.Len() {
				f(list.Get(k))
			}
		}
		return true
	})
}

// writingMethods returns the methods of all services that are not called with GET and have no stream.
func writingMethods() (methods []protoreflect.MethodDescriptor) {
	eachMethod(func(m protoreflect.MethodDescriptor) {
		if r := rule(m); r.GetGet() == "" && !m.IsStreamingClient() && !m.IsStreamingServer() {
			methods = append(methods, m)
		}
	})
	slices.SortFunc(methods, func(a, b protoreflect.MethodDescriptor) int {
		return strings.Compare(deletesLast(a), deletesLast(b))
	})
	return methods
}
