package registry

import (
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/iam"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
)

func pulls() noun.Noun {
	return noun.Noun{
		Area: "registry", Use: "pulls", One: "pull", Short: "See who pulled and pushed what",
		About: "Every pull and push of an image is kept for a time: who, what, when, from where and with which program.\n" +
			"Pulls that anybody may make are counted together if they are many: count says how many a line stands for.\n" +
			"To see them you need identity.list beside repo.list.",
		Message: noun.MessageOf(&ocipb.Pull{}),
		Filters: []noun.Field{
			{Flag: "repo", Path: "uidp.children_of", Ref: repos, Help: "only those of this `REPO`"},
			{Flag: "digest", Help: "only those of the image of this `DIGEST`"},
			{Flag: "identity", Path: "identity_uid", Ref: iam.Identities, Help: "only those by this `IDENTITY`"},
			{Flag: "direction", Help: "only those that went this `WAY`: pull or push"},
		},
		Columns: output.Columns("createTime", "direction", "repo", "tag", "digest", "identity", "count"),
		Wide:    output.Columns("remoteAddress", "userAgent", "repoUid", "identityUid"),
	}
}
