package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	advisoriespb "github.com/holdfast-dev/holdfast/gen/advisories/v1"
	budgetspb "github.com/holdfast-dev/holdfast/gen/budgets/v1"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	registrypb "github.com/holdfast-dev/holdfast/gen/registry/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// operate runs an operator command against the running server, and returns the output.
func (w *world) operate(t *testing.T, words ...string) string {
	t.Helper()
	var out bytes.Buffer
	if err := server.RunCommand(t.Context(), w.config, words, &out); err != nil {
		t.Fatalf("holdfastd %s: %v", strings.Join(words, " "), err)
	}
	return out.String()
}

// limits returns a request that sets the budget of a group to this number of repos.
func limits(group string, repos int64) *budgetspb.UpdateBudgetRequest {
	return &budgetspb.UpdateBudgetRequest{Budget: &budgetspb.Budget{Uid: group, Repos: &repos}}
}

// quotaOf returns the QuotaFailure violation in a status, or nil.
func quotaOf(st *status.Status) *errdetails.QuotaFailure_Violation {
	for _, d := range st.Details() {
		if q, ok := d.(*errdetails.QuotaFailure); ok && len(q.GetViolations()) == 1 {
			return q.GetViolations()[0]
		}
	}
	return nil
}

// TestAttackRaiseBudget tries to raise the budget of a group as its own administrators, as owners of other
// organizations, with narrowed tokens and as callers without a role. Only callers who may update the parent group may
// set a budget, and only the operator may set the budget of an organization.
func TestAttackRaiseBudget(t *testing.T) {
	storyTenants(t, func(t *testing.T, w *tenants) {
		above := w.child(t, w.folder, "above")
		below := w.child(t, above, "below")
		member := func(group, role string) string {
			person := resource.UserUID("https://people.example", group+role)
			w.bind(t, group, string(person), role)
			return w.mint(t, person, token.Claims{})
		}
		administrator, owner := member(below, ownerRole), member(w.a, ownerRole)
		viewer := member(w.a, string(resource.ManagedRoleUID("console_viewer")))
		person := resource.UserUID("https://people.example", w.a+ownerRole)
		caps := resource.CapabilitySet("groups.list")
		for who, bearer := range map[string]string{
			"the folder's administrator": administrator, "another organization's owner": w.mallory, "a viewer": viewer,
			"an owner whose token is narrowed to the folder": w.mint(t, person, token.Claims{
				Scopes: []resource.UID{resource.UID(below)},
			}),
			"an owner whose token is narrowed to groups.list": w.mint(t, person, token.Claims{Caps: &caps}),
			"a person without any role": w.mint(t,
				resource.UserUID("https://people.example", "nobody"), token.Claims{}),
			"a token of the registry, which is for another API": "",
		} {
			code := codes.PermissionDenied
			if bearer == "" {
				bearer, code = w.RegistryToken, codes.Unauthenticated
			}
			for _, group := range []string{below, w.a, w.b, above + "/0123456789abcdef", strings.Repeat("0", len(w.a))} {
				w.refused(t, who+" sets that of "+group, bearer, limits(group, 1000), code)
				w.refused(t, who+" takes away that of "+group, bearer, &budgetspb.DeleteBudgetRequest{Uid: group}, code)
			}
		}
		w.refused(t, "an owner sets the budget of the organization", owner, limits(w.a, 5), codes.PermissionDenied)
		for _, bad := range []int64{-1, math.MinInt64, math.MaxInt64, 1 << 53} {
			w.refused(t, fmt.Sprint("a limit of ", bad), owner, limits(below, bad), codes.InvalidArgument)
		}
		w.refused(t, "a missing group", owner, limits(above+"/0123456789abcdef", 1), codes.NotFound)

		for name, call := range w.protocols() {
			b := must[*budgetspb.Budget](t, call, owner, limits(below, 1))
			if b.GetRepos() != 1 || b.GetUid() != below || b.Identities != nil || b.GetUsage() == nil {
				t.Errorf("over %s: %v", name, b)
			}
		}
		w.allowed(t, administrator, &registrypb.CreateRepoRequest{Parent: below, Repo: &registrypb.Repo{Name: "one"}})
		w.overBudget(t, administrator, below, "repos", "people who may update the group above it, "+above+", can raise it")
		w.operate(t, "budgets", "set", "dev", "repos=1")
		w.overBudget(t, owner, w.a, "repos", "the operator of the installation can raise it")
		if shown := w.operate(t, "budgets", "show", "dev"); !strings.Contains(shown, "repos                1     1\n") {
			t.Errorf("the operator's output is\n%s", shown)
		}
		w.operate(t, "budgets", "set", w.a, "repos=unlimited")
		w.allowed(t, owner, &registrypb.CreateRepoRequest{Parent: w.a, Repo: &registrypb.Repo{Name: "two"}})
		w.overBudget(t, administrator, below, "repos", "")
	})
}

// overBudget checks that no repo can be added to a group. The error for its members must name the budget, and a dry
// run must give the same error.
func (w *tenants) overBudget(t *testing.T, bearer, group, metric, end string) {
	t.Helper()
	for _, dry := range []bool{false, true} {
		for name, call := range w.protocols() {
			_, st := call(t, bearer, &registrypb.CreateRepoRequest{
				Parent: group, Repo: &registrypb.Repo{Name: "more"}, ValidateOnly: dry,
			})
			q := quotaOf(st)
			if st.Code() != codes.FailedPrecondition || q.GetQuotaMetric() != metric || !strings.HasSuffix(st.Message(), end) ||
				q.GetSubject() != "group:"+group || q.GetQuotaValue() != 1 ||
				!strings.Contains(q.GetDescription(), "used 1 of its budget of 1") {
				t.Errorf("over %s: %v %v", name, st, q)
			}
		}
	}
}

// TestAttackBudgetUsage checks that callers cannot find out the usage of other groups: not with the get and list
// methods, not from events, and not from the text of an error.
func TestAttackBudgetUsage(t *testing.T) {
	storyTenants(t, func(t *testing.T, w *tenants) {
		w.operate(t, "budgets", "set", w.a, "repos=1", "stored_bytes=5000")
		w.operate(t, "budgets", "set", w.b, "webhooks=7")
		w.repo(t, w.a, "secret")
		pusher := resource.UID(w.robot(t, w.folder, "pusher"))
		w.bind(t, w.folder, string(pusher), w.role(t, w.a, "pusher", capabilities("repo.create", "manifest.create")...))
		bearer := w.mint(t, pusher, token.Claims{})

		for _, group := range []string{w.a, w.folder, w.folder + "/0123456789abcdef"} {
			w.refused(t, "another organization's owner", w.mallory,
				&budgetspb.GetBudgetRequest{Uid: group}, codes.PermissionDenied)
			w.refused(t, "a pusher", bearer, &budgetspb.GetBudgetRequest{Uid: group}, codes.PermissionDenied)
		}
		w.refused(t, "a segment of a foreign group", w.mallory,
			&budgetspb.GetBudgetRequest{Uid: w.b + w.folder[len(w.folder)-17:]}, codes.NotFound)
		for who, tt := range map[string]struct {
			bearer string
			want   []string
		}{"mallory": {w.mallory, []string{w.b}}, "a pusher": {bearer, nil}, "the owner": {w.Token, []string{w.a}}} {
			for name, call := range w.protocols() {
				got := must[*budgetspb.ListBudgetsResponse](t, call, tt.bearer, &budgetspb.ListBudgetsRequest{})
				var uids []string
				for _, b := range got.GetBudgets() {
					uids = append(uids, b.GetUid())
				}
				if !slices.Equal(uids, tt.want) || got.GetTotalCount() != int64(len(tt.want)) {
					t.Errorf("%s, over %s: %v", who, name, got)
				}
			}
		}
		for name, call := range w.protocols() {
			_, st := call(t, bearer, &registrypb.CreateRepoRequest{Parent: w.folder, Repo: &registrypb.Repo{Name: "x"}})
			q := quotaOf(st)
			if st.Code() != codes.FailedPrecondition || q.GetSubject() != "" || q.GetQuotaValue() != 0 ||
				strings.ContainsAny(st.Message()+fmt.Sprint(st.Details()), "0123456789") && strings.Contains(fmt.Sprint(st), w.a) {
				t.Errorf("over %s, a pusher gets %v", name, st)
			}
		}
		pushing := w.mint(t, pusher, token.Claims{Audience: []string{w.RegistryHost}})
		got := w.oci(t, pushing, "POST", "/v2/dev/folder/new/blobs/uploads/?digest="+digestOf("x"), "x")
		if got.status != http.StatusForbidden || !strings.Contains(got.body, `"DENIED"`) || strings.Contains(got.body, w.a) {
			t.Errorf("answer of the registry: %d %s", got.status, got.body)
		}
	})
}

// TestAttackBudgetBytes checks that a group cannot store more bytes than its budget: not with pushes, not with mounts
// from another repo, and not with unfinished uploads. It also checks that no other group is charged.
func TestAttackBudgetBytes(t *testing.T) {
	storyTenants(t, func(t *testing.T, w *tenants) {
		layer := strings.Repeat("layer", 200)
		w.repo(t, w.a, "base")
		w.pushImage(t, "dev/base", "1.0", "amd64", layer)
		used := func(group string) int64 {
			return must[*budgetspb.Budget](t, w.overGRPC, w.Token, &budgetspb.GetBudgetRequest{
				Uid: group,
			}).GetUsage().GetStoredBytes()
		}
		before := used(w.a)
		bytes := int64(1500)
		must[*budgetspb.Budget](t, w.overGRPC, w.Token, &budgetspb.UpdateBudgetRequest{
			Budget: &budgetspb.Budget{Uid: w.folder, StoredBytes: &bytes},
		})
		mount := func(repo string) int {
			return w.oci(t, w.RegistryToken, "POST",
				"/v2/dev/"+repo+"/blobs/uploads/?mount="+digestOf(layer)+"&from=dev/base", "").status
		}
		got := []int{mount("folder/app"), mount("folder/app"), mount("folder/more")}
		if !slices.Equal(got, []int{201, 201, 403}) {
			t.Errorf("HTTP status of the mounts: %v", got)
		}
		if got := used(w.folder); got != int64(len(layer)) {
			t.Errorf("the folder uses %d bytes after a mount of %d bytes", got, len(layer))
		}
		if got := used(w.a) - before; got != int64(len(layer)) {
			t.Errorf("the organization uses %d bytes more after a mount of %d bytes", got, len(layer))
		}
		big := strings.Repeat("x", 600)
		over := map[string]reply{
			"at once": w.oci(t, w.RegistryToken, "POST", "/v2/dev/folder/app/blobs/uploads/?digest="+digestOf(big), big),
			"in parts": w.oci(t, w.RegistryToken, "PATCH",
				w.oci(t, w.RegistryToken, "POST", "/v2/dev/folder/app/blobs/uploads/", "").header.Get("Location"), big),
		}
		for how, r := range over {
			want := "the group " + w.folder + " has used 1000 of its budget of 1500 stored bytes, " +
				"and this request needs 600 more; people who may update the group above it, " + w.a + ", can raise it"
			if r.status != http.StatusForbidden || !strings.Contains(r.body, want) || !strings.Contains(r.body, `"DENIED"`) {
				t.Errorf("%s: %d %s", how, r.status, r.body)
			}
		}
		first := w.oci(t, w.RegistryToken, "POST", "/v2/dev/folder/app/blobs/uploads/", "").header.Get("Location")
		if got := w.oci(t, w.RegistryToken, "PATCH", first, big[:400]).status; got != http.StatusAccepted ||
			used(w.folder) != 1400 {
			t.Errorf("after an unfinished upload (status %d) the folder uses %d bytes", got, used(w.folder))
		}
		second := w.oci(t, w.RegistryToken, "POST", "/v2/dev/folder/app/blobs/uploads/", "").header.Get("Location")
		if got := w.oci(t, w.RegistryToken, "PATCH", second, big[:400]).status; got != http.StatusForbidden {
			t.Errorf("a second unfinished upload: %d", got)
		}
		if got := w.oci(t, w.RegistryToken, "DELETE", first, "").status; got != http.StatusNoContent {
			t.Errorf("cancel an upload: %d", got)
		}
		if got := used(w.folder); got != int64(len(layer)) {
			t.Errorf("after refusals the folder uses %d bytes", got)
		}
		if got := w.oci(t, w.RegistryToken, "DELETE",
			"/v2/dev/folder/app/blobs/"+digestOf(layer), ""); got.status != http.StatusAccepted ||
			used(w.folder) != 0 {
			t.Errorf("after a deletion (status %d) the folder uses %d bytes", got.status, used(w.folder))
		}
	})
}

// TestAttackBudgetPulls uses up the pulls of a group. Anonymous clients may use up only the budget for anonymous
// pulls. Members must get an error that says how long to wait.
func TestAttackBudgetPulls(t *testing.T) {
	storyTenants(t, func(t *testing.T, w *tenants) {
		w.repo(t, w.folder, "app")
		must[*ocipb.Settings](t, w.overGRPC, w.Token, &ocipb.UpdateSettingsRequest{
			Settings: &ocipb.Settings{Uid: w.folder, Public: true},
		})
		w.pushImage(t, "dev/folder/app", "1.0", "amd64", "layer")
		w.operate(t, "budgets", "set", "dev", "pulls-per-day=3")
		pull := func(bearer string) reply { return w.oci(t, bearer, "GET", "/v2/dev/folder/app/manifests/1.0", "") }
		for range 5 {
			pull("")
		}
		if got := pull(""); got.status != http.StatusTooManyRequests || strings.Contains(got.body, w.a) {
			t.Errorf("the sixth anonymous pull: %d %s", got.status, got.body)
		}
		for i := range 3 {
			if got := pull(w.RegistryToken); got.status != http.StatusOK {
				t.Fatalf("a member's pull %d: %d %s", i, got.status, got.body)
			}
		}
		got := pull(w.RegistryToken)
		if got.status != http.StatusTooManyRequests || got.header.Get("Retry-After") == "" ||
			!strings.Contains(got.body, `"TOOMANYREQUESTS"`) ||
			!strings.Contains(got.body, "used 3 of its budget of 3 pulls per day") {
			t.Errorf("a member's fourth pull: %d %v %s", got.status, got.header, got.body)
		}
		if got := w.oci(t, w.RegistryToken, "HEAD", "/v2/dev/folder/app/manifests/1.0", ""); got.status != http.StatusOK {
			t.Errorf("HEAD request: %d", got.status)
		}
		b := must[*budgetspb.Budget](t, w.overGRPC, w.Token, &budgetspb.GetBudgetRequest{Uid: w.a})
		if u := b.GetUsage(); u.GetPullsToday() != 3 || u.GetPublicPullsToday() != 3 {
			t.Errorf("usage: %v", u)
		}
		w.operate(t, "budgets", "set", "dev", "pulls_per_day=unlimited")
		if got := pull(w.RegistryToken); got.status != http.StatusOK {
			t.Errorf("without a limit: %d", got.status)
		}
	})
}

// TestAttackBudgetRequests sends requests as a workload, as fast as it can. Only workloads of the same organization
// may be slowed down: not people, not other organizations, and not the organization that receives the requests.
func TestAttackBudgetRequests(t *testing.T) {
	t.Parallel()
	storetest.StoryURL(t, func(t *testing.T, url string) {
		clock := newClock()
		w := newTenants(t, serve(t, url, server.Config{Now: clock.now}, nil))
		w.operate(t, "budgets", "set", w.b, "requests_per_second=5")
		w.operate(t, "budgets", "set", w.a, "requests_per_second=1000000")
		robot := resource.UID(w.robot(t, w.a, "other"))
		noisy := must[*iampb.Identity](t, w.overGRPC, w.mallory, &iampb.CreateIdentityRequest{
			Parent: w.b, Identity: workload("noisy"),
		}).GetUid()
		bearer, quiet := w.mint(t, resource.UID(noisy), token.Claims{}), w.mint(t, robot, token.Claims{})
		ask := func(call caller, bearer string) *status.Status {
			_, st := call(t, bearer, proto.Message(&iampb.ListGroupsRequest{}))
			return st
		}
		clock.hold() // stops the clock, so that a slow machine does not change the rate
		refused := 0
		for _, call := range w.protocols() {
			for range 50 {
				st := ask(call, bearer)
				if st.Code() == codes.OK {
					continue
				}
				var retry time.Duration
				for _, d := range st.Details() {
					if r, ok := d.(*errdetails.RetryInfo); ok {
						retry = r.GetRetryDelay().AsDuration()
					}
				}
				if refused++; st.Code() != codes.ResourceExhausted ||
					quotaOf(st).GetQuotaMetric() != "requests_per_second" || retry <= 0 || retry > time.Second {
					t.Fatalf("refusal = %v", st)
				}
			}
			for who, bearer := range map[string]string{"another organization's": quiet, "a person's": w.mallory} {
				if st := ask(call, bearer); st.Code() != codes.OK {
					t.Errorf("%s request: %v", who, st)
				}
			}
		}
		if refused < 50 {
			t.Errorf("%d of 100 requests were refused, want at least 50", refused)
		}
		got := w.oci(t, w.mint(t, resource.UID(noisy), token.Claims{Audience: []string{w.RegistryHost}}), "GET", "/v2/", "")
		if got.status != http.StatusTooManyRequests || got.header.Get("Retry-After") == "" {
			t.Errorf("answer of the registry: %d %s", got.status, got.body)
		}
		metrics := w.send(t, "", "GET", "/metrics", "").body
		if !strings.Contains(metrics, `holdfast_budget_refusals_total{budget="requests_per_second"}`) ||
			strings.Contains(metrics, w.b) {
			t.Errorf("metrics: %s", metrics)
		}
	})
}

// TestBudgetEvents checks that the audit log of a group contains every change to its budget, with the previous
// values.
func TestBudgetEvents(t *testing.T) {
	storyTenants(t, func(t *testing.T, w *tenants) {
		w.allowed(t, w.Token, limits(w.folder, 3))
		w.allowed(t, w.Token, limits(w.folder, 4))
		w.allowed(t, w.Token, &budgetspb.DeleteBudgetRequest{Uid: w.folder})
		w.operate(t, "budgets", "set", w.folder, "repos=5")
		w.allowed(t, w.Token, &iampb.DeleteGroupRequest{Uid: w.folder})
		text := w.send(t, w.Token, "GET", "/audit/v1/entries?type=iam.budgets", "").body
		for _, want := range []string{"budgets.created.v1", "budgets.updated.v1", "budgets.deleted.v1"} {
			if !strings.Contains(text, want) {
				t.Errorf("no %s in %s", want, text)
			}
		}
	})
}

// budgetSteps returns the steps of TestApiBothProtocols that are about budgets.
func budgetSteps() []step {
	update := func(b *budgetspb.Budget, paths ...string) func(*story) proto.Message {
		return func(s *story) proto.Message {
			b := proto.Clone(b).(*budgetspb.Budget)
			b.Uid = s.uid("images")
			return &budgetspb.UpdateBudgetRequest{Budget: b, UpdateMask: mask(paths...)}
		}
	}
	get := func(s *story) proto.Message { return &budgetspb.GetBudgetRequest{Uid: s.uid("images")} }
	remove := func(s *story) proto.Message { return &budgetspb.DeleteBudgetRequest{Uid: s.uid("images")} }
	list := func(*story) proto.Message { return &budgetspb.ListBudgetsRequest{OrderBy: "create_time desc"} }
	zero, large, negative := int64(0), int64(50_000_000_000), int64(-1)
	return []step{
		{name: "budget there is none of", in: get},
		{name: "budget", in: update(&budgetspb.Budget{StoredBytes: &large, Webhooks: &zero})},
		{name: "budget of repos", in: update(&budgetspb.Budget{Repos: &zero})},
		{name: "repo over it", code: codes.FailedPrecondition, in: func(s *story) proto.Message {
			return &registrypb.CreateRepoRequest{Parent: s.uid("images"), Repo: &registrypb.Repo{Name: "over"}}
		}},
		{name: "limit taken away", in: update(&budgetspb.Budget{}, "repos", "webhooks")},
		{name: "budget of nonsense", code: codes.InvalidArgument, in: update(&budgetspb.Budget{Repos: &negative})},
		{name: "budget of the organization", code: codes.PermissionDenied, in: func(s *story) proto.Message {
			return limits(s.org(), 5)
		}},
		{
			name: "budget by somebody else",
			code: codes.PermissionDenied,
			in:   update(&budgetspb.Budget{Repos: &large}),
			as:   "ada",
		},
		{name: "budgets", in: list},
		{name: "budgets of a stranger", in: list, as: "stranger"},
		{name: "budget gone", in: remove},
		{name: "budget gone again", in: remove},
	}
}

// TestImportFailsAtOnce checks that a client learns of a batch that was refused while it waits to send more.
func TestImportFailsAtOnce(t *testing.T) {
	storyTenants(t, func(t *testing.T, w *tenants) {
		w.operate(t, "budgets", "set", w.a, "advisories=100")
		ctx, cancel := context.WithTimeout(bearing(t, w.Token), 40*time.Second) // an import without data ends after 60 s
		defer cancel()
		stream, err := advisoriespb.NewAdvisoryWritingServiceClient(w.conn).ImportAdvisories(ctx)
		archive := osvZip(t, 0, 2000) // a batch has 1,536 records
		for _, p := range []any{w.a, doc("osv.zip", len(archive)), archive} {
			if err == nil {
				err = stream.Send(part(p))
			}
		}
		for err == nil {
			_, err = stream.Recv()
		}
		if st := status.Convert(err); st.Code() != codes.FailedPrecondition ||
			quotaOf(st).GetQuotaMetric() != "advisories" {
			t.Errorf("the import ended with %v", err)
		}
	})
}

// TestAttackAccountRequests: two people with accounts of one organization send requests from the console as fast as
// they can. Together they have the rate of their organization. A person of another organization is not slowed down.
func TestAttackAccountRequests(t *testing.T) {
	t.Parallel()
	storetest.StoryURL(t, func(t *testing.T, url string) {
		clock := newClock()
		w := newTenants(t, serve(t, url, server.Config{Now: clock.now}, nil))
		consoleOf := func(bearer, org, email string) *signInBrowser {
			person := w.personIn(t, bearer, org, email, "a quiet violet anchor of "+email)
			b := w.signInBrowser(t, "127.0.0.1")
			if !b.try("", person.email, person.password).in() {
				t.Fatal("sign-in failed")
			}
			return b
		}
		ann, ben := consoleOf(w.mallory, w.b, "ann@example.test"), consoleOf(w.mallory, w.b, "ben@example.test")
		carol := consoleOf(w.Token, w.a, "carol@example.test")
		w.operate(t, "budgets", "set", w.b, "requests_per_second=2")
		w.operate(t, "budgets", "set", w.a, "requests_per_second=1000000")
		clock.hold() // stops the clock, so that a slow machine does not change the rate
		admitted := func(b *signInBrowser) (n int) {
			for range 20 {
				a := b.ask("GET", "/iam/v2beta1/groups", "", "Holdfast-Console", "1", "Sec-Fetch-Site", "same-origin")
				if a.status == http.StatusOK {
					n++
				} else if a.status != http.StatusTooManyRequests {
					t.Fatalf("a request from the console: %d %s", a.status, a.body)
				}
			}
			return n
		}
		if n := admitted(ann) + admitted(ben); n == 0 || n > 4 {
			t.Errorf("%d of 40 requests of two people are admitted, want about 2", n)
		}
		if n := admitted(carol); n != 20 {
			t.Errorf("%d of 20 requests of another organization are admitted", n)
		}
	})
}

// TestAttackImportOverBudget: an organization whose budget of advisories is used up announces large documents. Each is
// refused before its data arrives. Lists of exploits, other organizations and a raised budget are not affected.
func TestAttackImportOverBudget(t *testing.T) {
	storyTenants(t, func(t *testing.T, w *tenants) {
		w.operate(t, "budgets", "set", w.a, "advisories=0")
		for range 32 {
			_, st := w.takeIn(t, w.Token, w.a, doc("osv.zip", 8<<30))
			if st.Code() != codes.FailedPrecondition || quotaOf(st).GetQuotaMetric() != "advisories" {
				t.Fatalf("a large document: %v", st)
			}
		}
		list := doc("known.json", 2<<20)
		list.Format = "kev"
		if _, st := w.takeIn(t, w.Token, w.a, list); st.Code() != codes.InvalidArgument {
			t.Errorf("a list of exploits without data: %v", st)
		}
		archive := osvZip(t, 0, 9000)
		if len(archive) <= 1<<20 {
			t.Fatalf("the archive has only %d bytes", len(archive))
		}
		if _, st := w.takeIn(t, w.mallory, w.b, doc("osv.zip", len(archive)), archive); st != nil {
			t.Errorf("another organization: %v", st)
		}
		w.operate(t, "budgets", "set", w.a, "advisories=9000")
		if last, st := w.takeIn(t, w.Token, w.a, doc("osv.zip", len(archive)), archive); st != nil ||
			last.GetCounts().GetCreated() != 9000 {
			t.Errorf("with a higher budget: %v, %v", last, st)
		}
	})
}
