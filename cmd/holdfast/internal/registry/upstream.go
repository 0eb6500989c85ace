package registry

import (
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
)

// upstreams are the registries that groups fetch images from.
func upstreams() noun.Noun {
	return noun.Noun{
		Area: "registry", Use: "upstreams", One: "upstream",
		About: "An upstream is a registry that a group fetches images from when they are asked for: with the upstream docker.io,\n" +
			"acme/mirror/library/alpine:3.20 is library/alpine:3.20 of Docker Hub. What was fetched is stored, and served from\n" +
			"here whatever the upstream does later. Nothing can be pushed to a group that has an upstream.",
		Example: "  holdfast registry upstreams create docker.io --group acme/mirror --names 'library/*'\n" +
			"  holdfast registry upstreams create ghcr.io --group acme/ghcr --fresh-for 10m --credentials token.txt",
		Message: noun.MessageOf(&ocipb.Upstream{}),

		Argument: "name", ParentFlag: "group",
		Fields: []noun.Field{
			{Flag: "address", Help: "`ADDRESS` of the registry, such as https://ghcr.io (default: that of the name)"},
			{Flag: "fresh-for", Help: "`DURATION` for which a tag is believed, such as 10m or 1d (default: 1h)"},
			{Flag: "names", Help: "`PATTERN` of repos to fetch, such as 'library/*', 'acme/**' or '!acme/secret'; can be repeated"},
			{Flag: "credentials", File: true, Help: "`FILE` with user:password; - is standard input"},
			{Flag: "realm", Help: "`ADDRESS` of the registry's tokens, if they are at another host: the credentials are sent there, too"},
			{Flag: "identity", Help: "`UID` of an identity of another Holdfast that trusts this one, instead of credentials"},
			{Flag: "anyone", Help: "also fetch for those who may pull only because everybody may"},
		},
		ByName:  true,
		Columns: output.Columns("name", output.GroupOf("group", "uid"), "address", "freshFor", "names"),
		Wide:    output.Columns("uid", "realm", "hasCredentials", "identity", "anyone", "lastFailure", "lastFailureTime", "createTime", "updateTime"),
	}
}
