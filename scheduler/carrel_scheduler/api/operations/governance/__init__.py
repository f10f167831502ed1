"""Operations for administrators: what they configure for scopes, and what they look at."""
