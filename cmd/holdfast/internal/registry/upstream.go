package registry

import (
	"context"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	ocipb "github.com/holdfast-dev/holdfast/gen/oci/v1"
)

// upstreams returns the Noun for upstreams: registries from which groups fetch images.
func upstreams() noun.Noun {
	return noun.Noun{
		Area: "registry", Use: "upstreams", One: "upstream",
		Short: "Mirror other registries in a group",
		About: "An upstream is a registry from which a group fetches images on demand. With the upstream docker.io,\n" +
			"acme/mirror/library/alpine:3.20 is library/alpine:3.20 of Docker Hub. Fetched images are stored and served\n" +
			"from this registry, even if the upstream later changes or deletes them. A group with an upstream accepts\n" +
			"no pushes.",
		Example: "  holdfast registry upstreams create docker.io --group acme/mirror --names 'library/*'\n" +
			"  holdfast registry upstreams create ghcr.io --group acme/ghcr --fresh-for 10m --credentials token.txt",
		Message: noun.MessageOf(&ocipb.Upstream{}),

		Argument: "name", ParentFlag: "group",
		Fields: []noun.Field{
			{Flag: "address", Help: "`ADDRESS` of the registry, such as https://ghcr.io (default: derived from the name)"},
			{Flag: "fresh-for", Help: "`DURATION` for which a tag is not checked again, such as 10m or 1d (default: 1h)"},
			{
				Flag: "names",
				Help: "`PATTERN` of repos to fetch, such as 'library/*', 'acme/**' or '!acme/secret'; can be repeated",
			},
			{Flag: "credentials", File: true, Help: "`FILE` with user:password; - is standard input"},
			{
				Flag: "realm",
				Help: "`ADDRESS` of the registry's token service, if it is on another host; it receives the credentials",
			},
			{Flag: "identity", Help: "`UID` of an identity of another Holdfast that trusts this one, instead of credentials"},
			{Flag: "anyone", Help: "also fetch for anonymous pulls"},
		},
		ByName:  true,
		Columns: output.Columns("name", output.GroupOf("group", "uid"), "address", "freshFor", "names"),
		Wide: output.Columns("uid", "realm", "hasCredentials", "identity", "anyone", "lastFailure", "lastFailureTime",
			"createTime", "updateTime"),
		Remark: remarkProbe,
	}
}

// remarkProbe prints whether the server has reached a new upstream. An older server does not test it.
func remarkProbe(_ context.Context, a *noun.App, m protoreflect.Message) {
	u := m.Interface().(*ocipb.Upstream)
	probe := u.GetProbe()
	switch {
	case probe == nil:
		a.Note("%s is created, but was not tested", u.GetName())
	case probe.GetOk():
		a.Note("%s answers at %s", u.GetName(), u.GetAddress())
	default:
		a.Note("warning: %s is created, but a test request to %s failed: %s", u.GetName(), u.GetAddress(),
			probe.GetReason())
		a.Note("hint: correct it with holdfast registry upstreams update %s, or delete it", u.GetUid())
	}
}
