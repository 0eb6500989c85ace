package e2e_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
	registrypb "github.com/holdfast-dev/holdfast/gen/registry/v2beta1"
)

// TestApiRegistryDryRuns makes every change to the registry as a dry run, over both protocols. Each answer must be
// the same as for the real change, and nothing may change.
func TestApiRegistryDryRuns(t *testing.T) {
	t.Parallel()
	storyWorld(t, func(t *testing.T, w *world) {
		y := w.stock(t, w.makeThings(t))
		other := w.pushImage(t, "dev/folder/app", "other", "arm64", "other layer")
		must[*ocipb.Settings](t, w.overGRPC, w.Token, &ocipb.UpdateSettingsRequest{
			Settings: &ocipb.Settings{Uid: y.folder, ImmutableTags: true, ImmutableExcept: []string{"stable"}},
		})
		tests := map[string]struct {
			in   proto.Message
			code codes.Code
		}{
			"create a repo": {in: &registrypb.CreateRepoRequest{Parent: y.folder, Repo: &registrypb.Repo{Name: "new"}}},
			"create it twice": {
				in: &registrypb.CreateRepoRequest{Parent: y.folder, Repo: &registrypb.Repo{Name: "app"}}, code: codes.AlreadyExists,
			},
			"update a repo": {in: &registrypb.UpdateRepoRequest{Repo: &registrypb.Repo{Uid: y.repo, Name: "new"}}},
			"delete a repo": {in: &registrypb.DeleteRepoRequest{Uid: y.repo}},
			"write a readme": {
				in: &registrypb.UpdateRepoReadmeRequest{RepoReadme: &registrypb.RepoReadme{Uid: y.repo, Content: "new"}},
			},
			"create a tag": {
				in: &registrypb.CreateTagRequest{Parent: y.repo, Tag: &registrypb.Tag{Name: "new", Digest: y.digest}},
			},
			"move a tag": {
				in: &registrypb.CreateTagRequest{Parent: y.repo, Tag: &registrypb.Tag{Name: "stable", Digest: other}},
			},
			"move a fixed tag": {
				in:   &registrypb.CreateTagRequest{Parent: y.repo, Tag: &registrypb.Tag{Name: "pushed", Digest: other}},
				code: codes.FailedPrecondition,
			},
			"tag what is not": {
				in: &registrypb.CreateTagRequest{
					Parent: y.repo, Tag: &registrypb.Tag{Name: "new", Digest: "sha256:" + strings.Repeat("0", 64)},
				},
				code: codes.NotFound,
			},
			"delete a tag":        {in: &registrypb.DeleteTagRequest{Uid: y.tag}},
			"change the settings": {in: &ocipb.UpdateSettingsRequest{Settings: &ocipb.Settings{Uid: y.folder, Public: true}}},
			"drop the settings":   {in: &ocipb.DeleteSettingsRequest{Uid: y.folder}},
		}
		before := w.shelves(t, y)
		for name, tt := range tests {
			m := tt.in.ProtoReflect()
			m.Set(m.Descriptor().Fields().ByName("validate_only"), protoreflect.ValueOfBool(true))
			for protocol, call := range w.protocols() {
				if _, st := call(t, w.Token, tt.in); st.Code() != tt.code {
					t.Errorf("%s over %s: %v, want code %d", name, protocol, st, tt.code)
				}
				if diff := cmp.Diff(before, w.shelves(t, y)); diff != "" {
					t.Fatalf("%s over %s: the dry run changed something:\n%s", name, protocol, diff)
				}
			}
		}
	})
}
