"""A town library: copies, members, loans and holds."""

from typing import Any


class LibraryLoans:
    """Loans of a town library on one day.

    A member may have three loans. Others can hold a book that is on loan, first come first served; it then goes to the first of them alone.
    """

    def __init__(self, state: dict[str, Any] | None = None) -> None:
        self.today = 0
        self.loan_days = 14
        self.books: dict[str, dict[str, Any]] = {}
        self.members: dict[str, dict[str, Any]] = {}

    def search_books(self, words: str) -> list[dict[str, Any]]:
        """Books whose title or author holds all the words.

        Args:
            words: one or more words; letter case does not matter.
        """
        wanted = words.lower().split()
        found = [
            book_id for book_id, book in self.books.items() if all(word in f"{book['title']} {book['author']}".lower() for word in wanted)
        ]
        return [
            {"book_id": book_id, "title": self.books[book_id]["title"], "author": self.books[book_id]["author"]}
            for book_id in sorted(found)
        ]

    def find_member(self, name: str) -> list[dict[str, Any]]:
        """Members of this name.

        Args:
            name: the full name, or a part of it.
        """
        return [
            {"member_id": key, "name": member["name"]}
            for key, member in sorted(self.members.items())
            if name.lower() in member["name"].lower()
        ]

    def show_book(self, book_id: str) -> dict[str, Any]:
        """A book with who has it, until which day, and who waits for it.

        Args:
            book_id: such as B1.
        """
        book = self.books.get(book_id)
        return {"success": True, "today": self.today, **book} if book else self._no("book", book_id)

    def list_loans(self, member_id: str) -> dict[str, Any]:
        """The books that a member has on loan, with the day on which each is due.

        Args:
            member_id: such as M1.
        """
        if member_id not in self.members:
            return self._no("member", member_id)
        loans = [{"book_id": key, "due": book["due"]} for key, book in sorted(self.books.items()) if book["borrower"] == member_id]
        return {"success": True, "today": self.today, "loans": loans}

    def lend(self, book_id: str, member_id: str) -> dict[str, Any]:
        """Lend a book to a member until `loan_days` from today.

        Args:
            book_id: such as B1.
            member_id: such as M1.
        """
        book, member = self.books.get(book_id), self.members.get(member_id)
        if book is None or member is None:
            return self._no("book", book_id) if book is None else self._no("member", member_id)
        if book["borrower"] is not None:
            return {"success": False, "error": f"{book_id} is on loan to {book['borrower']}"}
        if book["holds"] and book["holds"][0] != member_id:
            return {"success": False, "error": f"{book_id} is held for {book['holds'][0]}"}
        if sum(other["borrower"] == member_id for other in self.books.values()) >= 3:
            return {"success": False, "error": f"{member_id} has three loans"}
        book.update(borrower=member_id, due=self.today + self.loan_days, renewals=0)
        book["holds"] = book["holds"][1:]
        return {"success": True, "due": book["due"]}

    def take_back(self, book_id: str) -> dict[str, Any]:
        """Take a book back; says who waits for it.

        Args:
            book_id: such as B1.
        """
        book = self.books.get(book_id)
        if book is None or book["borrower"] is None:
            return self._no("loan of", book_id)
        late = max(0, self.today - book["due"])
        self.members[book["borrower"]]["owes_cents"] += 20 * late
        book.update(borrower=None, due=None, renewals=0)
        return {"success": True, "days_late": late, "next": book["holds"][0] if book["holds"] else None}

    def renew(self, book_id: str) -> dict[str, Any]:
        """Lend a book for `loan_days` more, from today, once; not when somebody waits for it.

        Args:
            book_id: such as B1.
        """
        book = self.books.get(book_id)
        if book is None or book["borrower"] is None:
            return self._no("loan of", book_id)
        if book["holds"] or book["renewals"]:
            return {"success": False, "error": "somebody waits for it" if book["holds"] else "it was renewed before"}
        book.update(due=self.today + self.loan_days, renewals=1)
        return {"success": True, "due": book["due"]}

    def hold(self, book_id: str, member_id: str) -> dict[str, Any]:
        """Put a member on the list of those who wait for a book that is on loan.

        Args:
            book_id: such as B1.
            member_id: such as M1.
        """
        book = self.books.get(book_id)
        if book is None or member_id not in self.members:
            return self._no("book", book_id) if book is None else self._no("member", member_id)
        if book["borrower"] in (None, member_id) or member_id in book["holds"]:
            return {"success": False, "error": "only a book on loan to somebody else can be held, once"}
        book["holds"].append(member_id)
        return {"success": True, "place": len(book["holds"])}

    def _no(self, what: str, key: str) -> dict[str, Any]:
        return {"success": False, "error": f"there is no {what} {key}"}
