package e2e_test

import (
	"net/http"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	commonpb "github.com/holdfast-dev/holdfast/gen/common"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/server"
	"github.com/holdfast-dev/holdfast/internal/signin/token"
	"github.com/holdfast-dev/holdfast/internal/store/storetest"
)

// pull pulls a manifest from the registry, and fails the test if that fails.
func (w *world) pull(t *testing.T, bearer, repo, reference string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.BaseURL+"/v2/"+repo+"/manifests/"+reference, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.SetBasicAuth("_token", bearer)
	r.Header.Set("User-Agent", "puller/1")
	if got := w.roundTrip(t, r); got.status != http.StatusOK {
		t.Fatalf("pull %s:%s: HTTP status %d\n%s", repo, reference, got.status, got.body)
	}
}

// TestApiPulls pushes and pulls images, and checks the records of these pushes and pulls by repo, digest and
// identity. It lists them as every caller, over both protocols.
func TestApiPulls(t *testing.T) {
	t.Parallel()
	storyWorld(t, func(t *testing.T, w *world) {
		h := newHierarchy(t, w)
		app := h.repo(t, h.folder, "app")
		must[*ocipb.Settings](t, w.overGRPC, w.Token, &ocipb.UpdateSettingsRequest{
			Settings: &ocipb.Settings{Uid: h.folder, Public: true},
		})
		robot := h.robot(t, h.folder, "robot")
		digest := w.pushImage(t, "dev/folder/app", "1.0", "amd64", "layer")
		w.pushImage(t, "other/app", "1.0", "amd64", "other")
		w.pull(t, w.mint(t, resource.UID(robot), token.Claims{Audience: []string{w.RegistryHost}}), "dev/folder/app", "1.0")
		// The registry gives this token to clients that do not authenticate.
		w.pull(t, "anonymous", "dev/folder/app", digest)
		list := func(call caller, bearer string, in *ocipb.ListPullsRequest) []*ocipb.Pull {
			t.Helper()
			out := must[*ocipb.ListPullsResponse](t, call, bearer, in)
			if out.GetTotalCount() != int64(len(out.GetPulls())) {
				t.Errorf("%d pulls, total %d", len(out.GetPulls()), out.GetTotalCount())
			}
			return out.GetPulls()
		}
		procUntil(t, "four records", func() bool {
			return must[*ocipb.ListPullsResponse](t, w.overGRPC, w.Token, &ocipb.ListPullsRequest{}).GetTotalCount() == 4
		})
		byRepo := &ocipb.ListPullsRequest{Uidp: &commonpb.UIDPFilter{ChildrenOf: app}}
		for protocol, call := range w.protocols() {
			pulls := list(call, h.full["folder"], byRepo)
			if len(pulls) != 3 {
				t.Fatalf("over %s: %v, want three records of the repo", protocol, pulls)
			}
			anonymous, byRobot, push := pulls[0], pulls[1], pulls[2] // the newest record comes first
			if anonymous.GetIdentityUid() != "" || anonymous.GetTag() != "" ||
				anonymous.GetDigest() != digest || anonymous.GetRemoteAddress() != "127.0.0.1" {
				t.Errorf("over %s: the anonymous pull is %v", protocol, anonymous)
			}
			if byRobot.GetIdentityUid() != robot || byRobot.GetIdentity() != "robot" ||
				byRobot.GetTag() != "1.0" || byRobot.GetUserAgent() != "puller/1" {
				t.Errorf("over %s: the robot's pull is %v", protocol, byRobot)
			}
			if push.GetDirection() != ocipb.Direction_DIRECTION_PUSH || push.GetIdentityUid() != string(w.Owner) ||
				push.GetRepo() != "dev/folder/app" || push.GetRepoUid() != app {
				t.Errorf("over %s: the push is %v", protocol, push)
			}
			for name, tt := range map[string]struct {
				bearer string
				in     *ocipb.ListPullsRequest
				want   int
			}{
				"of a digest":              {w.Token, &ocipb.ListPullsRequest{Digest: digest}, 3},
				"of an identity":           {w.Token, &ocipb.ListPullsRequest{IdentityUid: robot}, 1},
				"of an identity in a repo": {w.Token, &ocipb.ListPullsRequest{IdentityUid: string(w.Owner), Uidp: byRepo.Uidp}, 1},
				"pulls of a repo": {
					w.Token, &ocipb.ListPullsRequest{Uidp: byRepo.Uidp, Direction: ocipb.Direction_DIRECTION_PULL}, 2,
				},
				"pushes of a repo": {
					w.Token, &ocipb.ListPullsRequest{Uidp: byRepo.Uidp, Direction: ocipb.Direction_DIRECTION_PUSH}, 1,
				},
				"pushes": {w.Token, &ocipb.ListPullsRequest{Direction: ocipb.Direction_DIRECTION_PUSH}, 2},
				"pulls for a sibling": {
					h.full["sibling"], &ocipb.ListPullsRequest{Direction: ocipb.Direction_DIRECTION_PULL}, 0,
				},
				"below the organization": {
					w.Token, &ocipb.ListPullsRequest{Uidp: &commonpb.UIDPFilter{DescendantsOf: h.org}}, 3,
				},
				"for the other organization": {h.full["other"], &ocipb.ListPullsRequest{}, 1},
				"for a sibling":              {h.full["sibling"], &ocipb.ListPullsRequest{}, 0},
				"without identity.list":      {h.lacking["identity.list"], &ocipb.ListPullsRequest{}, 0},
				"without repo.list":          {h.lacking["repo.list"], &ocipb.ListPullsRequest{}, 0},
			} {
				if got := list(call, tt.bearer, tt.in); len(got) != tt.want {
					t.Errorf("over %s: %s: %v, want %d", protocol, name, got, tt.want)
				}
			}
			if _, st := call(t, "", byRepo); st.Code() != codes.Unauthenticated {
				t.Errorf("over %s, without a token: %v", protocol, st)
			}
		}
	})
}

// TestPullTokenExpires pulls with a token of an identity with static keys as the password, until the token or the
// keys expire. From then on the registry must ask the client to log in, as if there were no password.
func TestPullTokenExpires(t *testing.T) {
	t.Parallel()
	clock := newClock()
	w := serve(t, storetest.SQLite(t), server.Config{Now: clock.now}, nil)
	f := newFakeIssuer(t, w)
	w.pushImage(t, "dev/app", "1.0", "amd64", "layer")
	robot := w.identify(t,
		&iampb.Identity{Name: "puller", Relationship: &iampb.Identity_StaticKeys_{StaticKeys: &iampb.Identity_StaticKeys{
			Issuer:         "https://keys.example",
			Subject:        "job",
			IssuerKeys:     string(fakeKeySet()),
			ExpirationTime: timestamppb.New(clock.now().Add(time.Hour)),
		}}})
	w.post(t, "/iam/v2beta1/roleBindings/"+string(w.Organization),
		`{"identityUid":"`+robot+`","roleUid":"`+string(resource.ManagedRoleUID("registry.pull"))+`"}`)
	password := func(life time.Duration) string {
		return f.token(map[string]any{"iss": "https://keys.example", "exp": time.Now().Add(life).Unix()})
	}
	short, long := password(20*time.Minute), password(24*time.Hour)
	pull := func(password string) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.BaseURL+"/v2/dev/app/manifests/1.0", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.SetBasicAuth(robot, password)
		return w.roundTrip(t, r).status
	}
	for _, step := range []struct {
		after       time.Duration
		short, long int
	}{
		{0, http.StatusOK, http.StatusOK},
		{30 * time.Minute, http.StatusUnauthorized, http.StatusOK},
		{31 * time.Minute, http.StatusUnauthorized, http.StatusUnauthorized},
	} {
		clock.advance(step.after)
		if a, b := pull(short), pull(long); a != step.short || b != step.long {
			t.Errorf("after %s: HTTP status %d with the short password and %d with the long one, want %d and %d",
				step.after, a, b, step.short, step.long)
		}
	}
}
