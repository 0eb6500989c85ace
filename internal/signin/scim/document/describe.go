package document

// MaxResults is the greatest number of resources on a page.
const MaxResults = 200

// Config returns the ServiceProviderConfig.
func Config(base string) Object {
	supported := func(yes bool) Object { return Object{"supported": yes} }
	return Object{
		"schemas":        []any{configSchema},
		"patch":          supported(true),
		"bulk":           Object{"supported": false, "maxOperations": 0, "maxPayloadSize": 0},
		"filter":         Object{"supported": true, "maxResults": MaxResults},
		"changePassword": supported(false),
		"sort":           supported(true),
		"etag":           supported(true),
		"authenticationSchemes": []any{Object{
			"type": "oauthbearertoken", "name": "Bearer token", "primary": true,
			"description": "The token that the identity provider's administrator has generated.",
		}},
		"meta": Object{"resourceType": "ServiceProviderConfig", "location": base + "/ServiceProviderConfig"},
	}
}

// ResourceTypes returns the types of resources that this service supports.
func ResourceTypes(base string) []Object {
	return []Object{{
		"schemas": []any{typeSchema}, "id": "User", "name": "User", "endpoint": "/Users", "schema": UserSchema,
		"description": "A person of the directory.",
		"schemaExtensions": []any{
			Object{"schema": EnterpriseSchema, "required": false},
		},
		"meta": Object{"resourceType": "ResourceType", "location": base + "/ResourceTypes/User"},
	}, {
		"schemas": []any{typeSchema}, "id": "Group", "name": "Group", "endpoint": "/Groups", "schema": GroupSchema,
		"description": "A team of the directory.", "schemaExtensions": []any{},
		"meta": Object{"resourceType": "ResourceType", "location": base + "/ResourceTypes/Group"},
	}}
}

// Schemas returns the schemas of these resources.
func Schemas(base string) []Object {
	describe := func(id, name, about string, attributes []attribute) Object {
		return Object{
			"schemas": []any{schemaSchema}, "id": id, "name": name, "description": about,
			"attributes": describeAll(attributes),
			"meta":       Object{"resourceType": "Schema", "location": base + "/Schemas/" + id},
		}
	}
	return []Object{
		describe(UserSchema, "User", "A person of the directory.", userAttributes),
		describe(GroupSchema, "Group", "A team of the directory.", groupAttributes),
		describe(EnterpriseSchema, "EnterpriseUser", "What a company knows about a person.", enterpriseAttributes),
	}
}

func describeAll(attributes []attribute) []any {
	out := make([]any, len(attributes))
	for i, a := range attributes {
		out[i] = a.describe()
	}
	return out
}

func (a attribute) describe() Object {
	choose := func(f flag, yes, no string) string {
		if a.flags&f != 0 {
			return yes
		}
		return no
	}
	o := Object{
		"name": a.name, "type": a.kind, "multiValued": a.flags&multi != 0, "description": a.about,
		"required": a.flags&required != 0, "caseExact": a.flags&caseExact != 0,
		"mutability": choose(readOnly, "readOnly", choose(neverReturned, "writeOnly", "readWrite")),
		"returned":   choose(neverReturned, "never", "default"),
		"uniqueness": choose(unique, "server", "none"),
	}
	if a.kind == "reference" {
		o["referenceTypes"] = []any{"external"}
	}
	if len(a.subs) > 0 {
		o["subAttributes"] = describeAll(a.subs)
	}
	return o
}
